"""A tensor-parallel degree that does not divide the attention heads.

vLLM refuses such a degree at start. A list in which some degrees fit is used without the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, written


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Listed tp degrees by which the heads are not divisible: an error when none is, else a warning."""
    for service in resolved.services:
        heads = service.model.heads
        for part in active_parts(service):
            tps = written(service, part).tp or ()
            bad = [i for i, tp in enumerate(tps) if heads % tp]
            for i in bad:
                usable = [d for d in (1, 2, 4, 8, 16) if heads % d == 0]
                yield Finding(
                    f"`tp` {tps[i]} does not divide the {heads} attention heads of {service.model.id}",
                    at(service, "constraints", part, "tp", i),
                    help=f"write degrees that divide {heads}, e.g. `tp: {usable}`",
                    severity=Severity.ERROR if len(bad) == len(tps) else Severity.WARNING,
                )


RULE = SpecRule(
    "DGC301",
    "heads-not-divisible",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/model.py:1557-1564",),
    fails=(
        """
        services: {chat: {constraints: {prefill: {tp: [3]}}}}
        #                                              ^ DGC301
        """,
        """
        services: {chat: {constraints: {decode: {tp: [2, 6]}}}}
        #                                                ^ DGC301 warning
        """,
    ),
    passes=("services: {chat: {constraints: {prefill: {tp: [1, 2]}}}}",),
)
