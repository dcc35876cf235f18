"""Arrivals more variable than any service sees.

The coefficient of variation is 1 for independent users and reaches 3 or 4 in recorded bursty traffic. A much larger
one makes every queue bound unreachable; mostly it is a percentage or a variance in the wrong field.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule

_EXTREME = 10.0


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """A written `arrivals.cv` above 10."""
    for service in resolved.services:
        for name, workload in service.given.workload.items():
            arrivals = workload.arrivals
            if arrivals is not None and arrivals.cv is not None and arrivals.cv > _EXTREME:
                yield Finding(
                    f"`cv` {arrivals.cv:g} is above {_EXTREME:g}; recorded bursty traffic reaches 3 or 4",
                    at(service, "workload", name, "arrivals", "cv"),
                    help="write the standard deviation over the mean of the times between arrivals, 1 for Poisson",
                )


RULE = SpecRule(
    "DGC513",
    "extreme-burst",
    Severity.WARNING,
    check,
    sources=("BurstGPT and Azure LLM inference traces: cv of inter-arrival times",),
    fails=(
        """
        services: {chat: {workload: {talk: {arrivals: {cv: 50}}}}}
        #                                                  ^ DGC513
        """,
    ),
    passes=("services: {chat: {workload: {talk: {arrivals: {cv: 3}}}}}",),
)
