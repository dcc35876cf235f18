"""A prefill engine that may go while KV is still leased.

Decode fetches KV from the engine that made it. The engine must live at least as long after its last request as the
lease, or transfers fail in every rollout.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Role
from disaggc.rules.planned import service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Shutdown time of prefill and flexible pools against the lease."""
    for service in planned.plan.services:
        for pool in service.pools:
            keeps = pool.role in (Role.PREFILL, Role.FLEXIBLE) and service.connector is not None
            if (
                keeps
                and service.connector is not None
                and pool.timings.shutdown_s < service.connector.lease_s
            ):
                yield Finding(
                    f"{pool.address} stops after {pool.timings.shutdown_s} s, its KV is leased for "
                    f"{service.connector.lease_s} s",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC631",
    "prefill-outlives-lease",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: v1/engine/core.py:1608, v1/core/sched/scheduler.py:3157-3182",),
    fails=(
        (
            Edit("services/chat/pools/prefill/timings/shutdown_s", 7),
            Edit("services/chat/pools/prefill/replicas/*/arguments/--shutdown-timeout", "7"),
        ),
    ),
)
