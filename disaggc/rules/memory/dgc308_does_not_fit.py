"""A model that fits in no allowed shape.

Weights, the smallest activation buffers and the KV of one sequence of `max-model-len` must fit into the share of
memory that the engine may take. vLLM checks this at start, after the weights were loaded.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.perf.memory import MemoryDemand, NoFit, fit
from disaggc.resolve.model import PartName, ResolvedService, ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups, role_of, widest_shapes


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """For each role: no group with a shape that fits; reported with the shape that comes nearest."""
    for service in resolved.services:
        for part in active_parts(service):
            nearest = _nearest_miss(resolved, service, part)
            if nearest is not None:
                forced = service.mode != "auto"
                yield Finding(
                    f"`model` {service.model.id} fits {part} nowhere: {nearest}",
                    at(service, "model"),
                    help="allow wider shapes, nodes with more memory, or lower `engine.settings.max-model-len`",
                    severity=Severity.ERROR if forced or part == "colocated" else Severity.WARNING,
                )


def _nearest_miss(resolved: ResolvedSpec, service: ResolvedService, part: PartName) -> NoFit | None:
    demand = MemoryDemand(service.classes)
    misses: list[NoFit] = []
    for group in groups(resolved, service, part):
        for shape in widest_shapes(service, part, group):
            result = fit(service, group, role_of(part), shape=shape, demand=demand)
            if not isinstance(result, NoFit):
                return None
            misses.append(result)
    return min(misses, key=lambda miss: miss.need_bytes - miss.have_bytes, default=None)


RULE = SpecRule(
    "DGC308",
    "does-not-fit",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: v1/core/kv_cache_planning.py:50-90, v1/worker/utils.py:716-766",),
    fails=(
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}
        #          ^ DGC308
            constraints: {mode: colocated, colocated: {tp: [4], pp: [1], dp: [1]}}
        """,
        """
        cluster: {nodes: {h100: {accelerator: {memory: 9GiB}}}}
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/lite}
        #          ^ DGC308
            engine: {settings: {max-model-len: 163840}}
            constraints: {mode: colocated, colocated: {tp: [8], pp: [1], dp: [1]}}
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}
            constraints: {mode: colocated, colocated: {tp: [8], pp: [2], dp: [1]}}
        """,
        """
        cluster: {nodes: {h100: {accelerator: {memory: 9GiB}}}}
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/lite}
            engine: {settings: {max-model-len: 163840}}
            constraints: {mode: colocated, colocated: {tp: [8], pp: [1], dp: [1], dcp: [1, 8]}}
        """,
    ),
    suppressible=False,
)
