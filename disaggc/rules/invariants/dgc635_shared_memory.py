"""An engine without shared memory.

Workers of one engine exchange through /dev/shm. Containers get 64 MB by default; the engine fails after some
restarts or under load.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule
from disaggc.units import format_bytes

_LEAST = 2**30


def check(planned: Planned) -> Iterator[Finding]:
    """`shm_bytes` of every pool at least 1 GiB."""
    for service in planned.plan.services:
        for pool in service.pools:
            if pool.shm_bytes < _LEAST:
                has, needs = format_bytes(pool.shm_bytes), format_bytes(_LEAST)
                message = f"{pool.address} has {has} of shared memory, it needs {needs}"
                yield Finding(message, service_path(service))


RULE = PlanRule(
    "DGC635",
    "shared-memory",
    Severity.ERROR,
    check,
    sources=("https://github.com/llm-d/llm-d/issues/352", "https://github.com/llm-d/llm-d/issues/364"),
    fails=((Edit("services/chat/pools/decode/shm_bytes", 67108864),),),
)
