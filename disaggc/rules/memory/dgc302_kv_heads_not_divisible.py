"""A tensor-parallel degree that neither divides the KV heads nor is a multiple of them.

vLLM's configuration accepts it, and the model's code stops with a bare assertion while loading.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, written


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Listed tp degrees that divide the query heads but do not go with the KV heads; MLA has none to split."""
    for service in resolved.services:
        model = service.model
        if model.attention is Attention.MLA or not model.kv_heads:
            continue
        for part in active_parts(service):
            tps = written(service, part).tp or ()
            bad = [
                i
                for i, tp in enumerate(tps)
                if model.heads % tp == 0 and model.kv_heads % tp and tp % model.kv_heads
            ]
            for i in bad:
                yield Finding(
                    f"`tp` {tps[i]} neither divides nor multiplies the {model.kv_heads} KV heads of {model.id}; "
                    "the engine would stop while loading",
                    at(service, "constraints", part, "tp", i),
                    help=f"write degrees that divide {model.kv_heads} or are multiples of it",
                    severity=Severity.ERROR if len(bad) == len(tps) else Severity.WARNING,
                )


RULE = SpecRule(
    "DGC302",
    "kv-heads-not-divisible",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/model.py:1663-1683, models/llama.py:151-155, qwen3_moe.py:271-275",),
    fails=(
        """
        cluster: {nodes: {h100: {accelerator: {per_node: 12}}}}
        services:
          chat:
            model: {id: zai-org/GLM-4.5, weights: /models/glm}
            constraints: {mode: disaggregated, decode: {tp: [12]}}
        #                                                    ^ DGC302
        """,
    ),
    passes=("services: {chat: {constraints: {decode: {tp: [8]}}}}",),
)
