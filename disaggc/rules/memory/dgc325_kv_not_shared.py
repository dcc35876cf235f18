"""A decode-context-parallel degree that the engines would refuse.

With `dcp` the tensor-parallel ranks that would each hold a copy of a sequence's KV share it by tokens: all ranks with a
latent cache (MLA), TP / KV heads of them otherwise. vLLM refuses to start where fewer ranks hold copies, where layers
have sliding windows, and where the attention kernel does not return what the ranks exchange (on AMD all but those of
latent caches, on CPUs all).
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.sizing import tp_allowed
from disaggc.diagnostics import Severity
from disaggc.ir.plan import Shape
from disaggc.resolve.model import PartName, ResolvedService, ResolvedSpec
from disaggc.resolve.shared_kv import shared_kv_refusal
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups, resolved_choices, stated_in


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Listed degrees that no tensor-parallel degree on any allowed node can take; error when none is left."""
    for service in resolved.services:
        for part in active_parts(service):
            where = stated_in(service, part)
            if where is None:
                continue
            degrees = resolved_choices(service, part).dcp
            refused = {
                i: why
                for i, dcp in enumerate(degrees)
                if (why := _refusal(resolved, service, part=part, dcp=dcp))
            }
            for i, why in refused.items():
                yield Finding(
                    f"`dcp` {degrees[i]} fits no engine of {service.model.id}: {why}",
                    at(service, "constraints", where, "dcp", i),
                    help="write `dcp: [1]`, or remove it"
                    if len(degrees) == 1
                    else f"remove {degrees[i]} from `dcp`",
                    severity=Severity.ERROR if len(refused) == len(degrees) else Severity.WARNING,
                )


def _refusal(resolved: ResolvedSpec, service: ResolvedService, *, part: PartName, dcp: int) -> str | None:
    """None where some engine takes it; else why the widest one does not."""
    why = None
    for group in groups(resolved, service, part):
        total = len(group.nodes) * group.per_node
        powers = tuple(1 << k for k in range(total.bit_length()))
        for tp in resolved_choices(service, part).tp or powers:
            if tp_allowed(service.model, tp) is not None:
                continue
            why = shared_kv_refusal(service, Shape(tp=tp, dcp=dcp), part=part, accelerator=group.accelerator)
            if why is None:
                return None
    return why


RULE = SpecRule(
    "DGC325",
    "kv-not-shared",
    Severity.ERROR,
    check,
    sources=(
        "vLLM 0.33: vllm/config/model.py:1578-1607, vllm/v1/kv_cache_interface.py (SlidingWindowSpec)",
        "vLLM 0.32: vllm/config/parallel.py:592-596, v1/attention/backend.py:343, v1/worker/cp_utils.py:20-62",
        "https://docs.vllm.ai/en/latest/serving/context_parallel_deployment.html",
    ),
    fails=(
        """
        cluster: {nodes: {h100: {accelerator: {type: h100-sxm}}}}
        services:
          chat:
            model: {id: Qwen/Qwen3-235B-A22B, weights: /models/qwen}
            constraints: {mode: colocated, colocated: {tp: [8], dcp: [4]}}
        #                                                             ^ DGC325
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/v2}
            constraints: {decode: {tp: [8], dcp: [1, 8]}}
        """,
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-235B-A22B, weights: /models/qwen}
            constraints: {mode: colocated, colocated: {tp: [8], dcp: [2]}}
        """,
    ),
)
