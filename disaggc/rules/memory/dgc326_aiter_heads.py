"""Heads per rank that the ROCm MLA kernel of this version does not take.

Before 0.22 the AITER kernel for MLA took 16 or 128 heads per rank and stopped the engine otherwise: a DeepSeek
model ran with tensor parallelism 8 or 1 and not with 4.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, version
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups, written

_FIXED = (0, 22, 0)
_TAKEN = (16, 128)


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Listed tp degrees of MLA models on AMD that leave another number of heads, for versions before the fix."""
    for service in resolved.services:
        if service.model.attention is not Attention.MLA or version(service) >= _FIXED:
            continue
        for part in active_parts(service):
            amd = any(group.accelerator.vendor == "amd" for group in groups(resolved, service, part))
            for i, tp in enumerate(written(service, part).tp or ()):
                if amd and service.model.heads % tp == 0 and service.model.heads // tp not in _TAKEN:
                    heads = service.model.heads // tp
                    yield Finding(
                        f"`tp` {tp} leaves {heads} heads per rank; before 0.22 the ROCm kernel takes 16 or 128",
                        at(service, "constraints", part, "tp", i),
                        help=f"write `tp: [{service.model.heads // _TAKEN[0]}]`, or pin vLLM 0.22 or newer",
                    )


RULE = SpecRule(
    "DGC326",
    "aiter-heads",
    Severity.WARNING,
    check,
    sources=("https://github.com/vllm-project/vllm/pull/41835",),
    fails=(
        """
        cluster: {nodes: {h100: {accelerator: {type: mi300x, per_node: 8}}}}
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}
            engine: {vllm: 0.21.0}
        #                  ^ DGC222
            constraints: {mode: disaggregated, prefill: {tp: [4, 8]}}
        #                                                     ^ DGC326
        """,
    ),
    passes=(
        """
        cluster: {nodes: {h100: {accelerator: {type: mi300x, per_node: 8}}}}
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}
            constraints: {mode: disaggregated, prefill: {tp: [4, 8]}}
        """,
    ),
)
