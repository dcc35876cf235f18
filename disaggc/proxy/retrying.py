"""What follows a failed leg: another replica, decode alone, or the end, as the table and what was tried say.

Knows replicas and policy, not connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.proxy.board import PerClass, Total
from disaggc.proxy.failures import LegError, RefusedError

if TYPE_CHECKING:
    from disaggc.proxy.generation import Generation


def without_prefill(x: Generation) -> None:
    """No prefill replica can be used: decode alone where the policy says so, else say it."""
    if x.service.table.on_prefill_failure != "decode-locally":
        x.service.tally.cells[Total.REFUSED_NO_REPLICA] += 1
        raise RefusedError(503, "no prefill engine is available", retry_after=2)
    _fall_back(x)


def _fall_back(x: Generation) -> None:
    x.remote = False
    x.service.tally.by_class(x.position, PerClass.FALLBACK)


def next_try(x: Generation, error: LegError) -> None:
    """Prepare another try, or end with the status of the last failure."""
    table = x.service.table
    over = x.clock() >= x.started + table.timeouts.total_s
    if error.prefill:
        x.tried.add(x.entry.prefill)
        if table.on_prefill_failure == "error" or over:
            raise RefusedError(error.status, f"prefill failed: {error.reason}")
        if table.on_prefill_failure == "decode-locally":
            _fall_back(x)
            return
    if x.tries >= table.retries or over:
        raise RefusedError(error.status, f"{'prefill' if error.prefill else 'decode'} failed: {error.reason}")
    x.tries += 1
    x.entry.retries = x.tries
    if not error.prefill:
        x.tried.add(x.entry.decode)
        _move_elsewhere(x)


def _move_elsewhere(x: Generation) -> None:
    """Another decode replica, an untried one if there is any."""
    fleet, now = x.service.fleet, x.clock()
    untried = [r for r in fleet.servers if r.address not in x.tried]
    other = fleet.choose(untried, fleet.for_decode, now=now) or fleet.choose(
        fleet.servers, fleet.for_decode, now=now
    )
    if other is None:
        raise RefusedError(503, "no decode engine is available", retry_after=2)
    x.move_to(other)
