"""A drain that is shorter than a request may take.

A replica that is stopped finishes its requests for `drain_timeout` and then cuts the rest. When the spec itself
allows requests to take longer, each rollout loses some of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule
from disaggc.units import format_duration


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """An explicit `drain_timeout` below the loosest e2e bound of any class."""
    drain = resolved.spec.rollout.drain_timeout
    if drain == "auto":
        return
    longest = max(
        (
            (bound.limit_s, service.name, load.name)
            for service in resolved.services
            for load in service.classes
            for bound in load.bounds
            if bound.metric == "e2e"
        ),
        default=None,
    )
    if longest is not None and drain < longest[0]:
        yield Finding(
            f"`drain_timeout` {format_duration(drain)} is shorter than the {format_duration(longest[0])} that "
            f"{longest[1]}/{longest[2]} requests may take; rollouts would cut them",
            ("rollout", "drain_timeout"),
            help="write `drain_timeout: auto`",
        )


RULE = SpecRule(
    "DGC710",
    "drain-too-short",
    Severity.WARNING,
    check,
    sources=("https://github.com/kserve/kserve/pull/5496",),
    fails=(
        """
        services: {chat: {workload: {talk: {objectives: {e2e_p99: 5min}}}}}
        rollout: {drain_timeout: 10s}
        #                        ^ DGC710
        """,
    ),
    passes=("rollout: {drain_timeout: auto}",),
)
