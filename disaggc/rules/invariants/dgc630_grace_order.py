"""A kill that comes before the end of the drain.

The grace must exceed the pre-stop pause, the engine's own shutdown time and the time its workers take to exit, or
requests in flight are cut and KV still to be fetched is torn down. An engine with a shutdown time of 0 aborts at
once.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import flag_number, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_WORKER_EXIT_S = {"nvidia": 5, "cpu": 5, "amd": 15}
"""VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS by vendor."""


def check(planned: Planned) -> Iterator[Finding]:
    """Grace above pre-stop, shutdown and the vendor's worker exit; the flag equals the plan and is above 0."""
    for service in planned.plan.services:
        for pool in service.pools:
            t = pool.timings
            exits = _WORKER_EXIT_S[pool.vendor]
            if t.worker_exit_s < exits:
                message = f"{pool.address} gives workers {t.worker_exit_s} s to exit, {pool.vendor} ones take {exits} s"
                yield Finding(message, service_path(service))
            needed = t.pre_stop_s + t.shutdown_s + t.worker_exit_s
            if t.grace_s <= needed:
                yield Finding(
                    f"{pool.address} is killed after {t.grace_s} s, stopping takes up to {needed} s",
                    service_path(service),
                )
    for service, pool, replica in replicas(planned.plan):
        told = flag_number(replica, "shutdown-timeout") or 0
        if told <= 0 or told != pool.timings.shutdown_s:
            yield Finding(
                f"{replica.address} has `--shutdown-timeout` {told:g}, the plan has {pool.timings.shutdown_s}",
                service_path(service),
            )


RULE = PlanRule(
    "DGC630",
    "grace-order",
    Severity.ERROR,
    check,
    sources=("https://github.com/kserve/kserve/pull/5496", "https://github.com/vllm-project/vllm/pull/43208"),
    fails=(
        (Edit("services/chat/pools/decode/timings/grace_s", 1),),
        (Edit("services/chat/pools/decode/timings/worker_exit_s", 1),),
        (Edit("services/chat/pools/decode/replicas/0/arguments/--shutdown-timeout", None),),
    ),
)
