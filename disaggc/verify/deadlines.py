"""Deadlines that a spec gives its proxy, against what the plan itself predicts."""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Diagnostic
from disaggc.diagnostics.model import warning
from disaggc.ir.plan import ServicePlan
from disaggc.resolve.model import ResolvedService
from disaggc.units import format_duration

_ENDS = (("prefill", "ttft"), ("first_byte", "ttft"), ("gap", "itl"), ("total", "e2e"))
"""(deadline, what it ends). Neither leg need be shorter than the whole first token: decode may prefill alone."""


def short_deadlines(planned: ServicePlan, service: ResolvedService) -> Iterator[Diagnostic]:
    """DGC545 where a given deadline is below the likely p99 of a class: it would end what is only slow."""
    for name, metric in _ENDS:
        limit = getattr(service.given.proxy.timeouts, name)
        p99 = {
            one: getattr(seen, f"{metric}_ms").p99.value for one, seen in planned.predicted.classes.items()
        }
        slowest = max(p99, key=lambda one: p99[one])
        slow = p99[slowest] / 1000
        if limit is not None and limit < slow:
            yield warning(
                "DGC545",
                f"`{name}` {format_duration(limit)} is below the {format_duration(slow)} predicted as p99 "
                f"{metric.upper()} of `{slowest}`; the proxy would end requests that are only slow, and try some again",
                ("services", planned.name, "proxy", "timeouts", name),
                help=f"leave `{name}` out, or write well above {format_duration(slow)}",
            )
