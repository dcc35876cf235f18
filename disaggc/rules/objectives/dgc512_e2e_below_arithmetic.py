"""An end-to-end latency that no layout can reach.

The whole answer takes at least one prompt and one read of the active weights for each further token.
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
    """Each e2e bound against the output length at its percentile times the shortest step."""
    for service, load, scenario in class_loads(resolved):
        step = least_step_s(resolved, service)
        length = {50: load.osl.p50, 90: load.osl.p90, 99: load.osl.p99}
        for bound in load.bounds:
            least = (length[bound.percentile] - 1) * step
            if bound.metric == "e2e" and bound.limit_s < least:
                name = f"e2e_p{bound.percentile}"
                yield Finding(
                    f"`{name}` {format_duration(bound.limit_s)} is below the {format_duration(least)} that "
                    f"{length[bound.percentile]:,.0f} output tokens take at peak bandwidth",
                    load_path(service, load, scenario, "objectives", name),
                    help="raise the bound, allow wider replicas, or shorten the output",
                )


RULE = SpecRule(
    "DGC512",
    "e2e-below-arithmetic",
    Severity.ERROR,
    check,
    sources=("arithmetic: active weight bytes over memory bandwidth, for each output token",),
    fails=(
        """
        services: {chat: {workload: {talk: {objectives: {e2e_p50: 20ms}}}}}
        #                                                         ^ DGC512
        """,
    ),
    passes=("services: {chat: {workload: {talk: {objectives: {e2e_p50: 30s}}}}}",),
)
