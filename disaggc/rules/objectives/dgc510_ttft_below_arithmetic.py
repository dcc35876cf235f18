"""A time to first token that no layout can reach.

Even alone on the widest allowed replica, at the accelerators' peak, the prompt takes longer to run than the bound
allows. No ratio, queue or tuning changes that.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import class_loads, load_path
from disaggc.rules.roofline import least_prefill_s
from disaggc.rules.rule import Finding, SpecRule
from disaggc.units import format_duration


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Each ttft bound against the arithmetic of the prompt length at its percentile, cached tokens left out."""
    for service, load, scenario in class_loads(resolved):
        length = {50: load.isl.p50, 90: load.isl.p90, 99: load.isl.p99}
        for bound in load.bounds:
            if bound.metric != "ttft":
                continue
            tokens = length[bound.percentile] * (1 - load.prefix_hit)
            least = least_prefill_s(resolved, service, tokens)
            if bound.limit_s < least:
                name = f"ttft_p{bound.percentile}"
                yield Finding(
                    f"`{name}` {format_duration(bound.limit_s)} is below the {format_duration(least)} that "
                    f"{tokens:,.0f} prompt tokens take at the accelerators' peak",
                    load_path(service, load, scenario, "objectives", name),
                    help="raise the bound, allow wider replicas, or shorten the prompt",
                )


RULE = SpecRule(
    "DGC510",
    "ttft-below-arithmetic",
    Severity.ERROR,
    check,
    sources=("arithmetic: 2 FLOP per active parameter and token",),
    fails=(
        """
        services:
          chat:
            workload:
              talk:
                input_tokens: 6000
                objectives: {ttft_p90: 1ms}
        #                              ^ DGC510
        """,
    ),
    passes=("services: {chat: {workload: {talk: {objectives: {ttft_p90: 1s}}}}}",),
)
