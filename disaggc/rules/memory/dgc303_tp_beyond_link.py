"""Tensor parallelism wider than the fast link.

Every layer of a tensor-parallel engine waits for an all-reduce over all its accelerators. Across the network
between nodes that costs more than the engine saves; vLLM also needs several nodes for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups, written


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Listed tp degrees above what one node or link domain of any allowed group joins; error when all are."""
    for service in resolved.services:
        for part in active_parts(service):
            widest = max(
                (max(g.per_node, g.accelerator.link_domain) for g in groups(resolved, service, part)),
                default=0,
            )
            tps = written(service, part).tp or ()
            bad = [i for i, tp in enumerate(tps) if widest and tp > widest]
            for i in bad:
                yield Finding(
                    f"`tp` {tps[i]} exceeds the {widest} accelerators that one node or link domain joins",
                    at(service, "constraints", part, "tp", i),
                    help=f"write at most `tp: [{widest}]`; use `pp` or, for experts, `dp` to span nodes",
                    severity=Severity.ERROR if len(bad) == len(tps) else Severity.WARNING,
                )


RULE = SpecRule(
    "DGC303",
    "tp-beyond-link",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/parallel.py:1066",),
    fails=(
        """
        services: {chat: {constraints: {decode: {tp: [16]}}}}
        #                                             ^ DGC303
        """,
    ),
    passes=("services: {chat: {constraints: {decode: {tp: [8]}}}}",),
)
