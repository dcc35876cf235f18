"""A time between tokens that no layout can reach.

Every token reads the active weights once. At the memory bandwidth of the widest allowed replica that alone takes
longer than the bound allows.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import class_loads, load_path
from disaggc.rules.roofline import least_step_s
from disaggc.rules.rule import Finding, SpecRule
from disaggc.units import format_duration


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Each itl bound against one read of the active weights."""
    for service, load, scenario in class_loads(resolved):
        least = least_step_s(resolved, service)
        for bound in load.bounds:
            if bound.metric == "itl" and bound.limit_s < least:
                name = f"itl_p{bound.percentile}"
                yield Finding(
                    f"`{name}` {format_duration(bound.limit_s)} is below the {format_duration(least)} that reading "
                    "the active weights takes at peak bandwidth",
                    load_path(service, load, scenario, "objectives", name),
                    help="raise the bound, allow wider replicas, or add `speculative`",
                )


RULE = SpecRule(
    "DGC511",
    "itl-below-arithmetic",
    Severity.ERROR,
    check,
    sources=("arithmetic: active weight bytes over memory bandwidth",),
    fails=(
        """
        services: {chat: {workload: {talk: {objectives: {itl_p99: 100us}}}}}
        #                                                         ^ DGC511
        """,
    ),
    passes=("services: {chat: {workload: {talk: {objectives: {itl_p99: 50ms}}}}}",),
)
