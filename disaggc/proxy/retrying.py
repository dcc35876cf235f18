"""What may follow a failed try: another prefill, another decode, decode alone, or the end. Knows no bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.proxy.board import Total
from disaggc.proxy.failures import LegError, RefusedError

if TYPE_CHECKING:
    from disaggc.proxy.generation import Generation


def next_try(x: Generation, error: LegError, now: float) -> None:
    """Prepare another try; RefusedError with the status of this failure where there is none."""
    table = x.service.table
    over = now >= x.last
    side = "prefill" if error.prefill else "decode"
    if error.prefill:
        x.tried |= {x.entry.prefill}
        if table.on_prefill_failure == "error" or over:
            raise RefusedError(error.status, f"prefill failed: {error.reason}")
        if table.on_prefill_failure == "decode-locally":
            x.fall_back()
            return
    if x.tries >= table.retries or over:
        raise RefusedError(error.status, f"{side} failed: {error.reason}")
    x.tries += 1
    x.entry.retries = x.tries
    if not error.prefill:
        # decode may have failed only because prefill, dead meanwhile, never delivered
        x.tried |= {x.entry.decode, x.entry.prefill}
        _move_elsewhere(x, now)


def _move_elsewhere(x: Generation, now: float) -> None:
    """Another decode replica, an untried one if there is any."""
    fleet = x.service.fleet
    untried = [r for r in fleet.servers if r.address not in x.tried]
    other = fleet.choose(untried, fleet.for_decode, now=now) or fleet.choose(
        fleet.servers, fleet.for_decode, now=now
    )
    if other is None:
        raise RefusedError(503, "no decode engine is available", retry_after=2)
    x.move_to(other)


def without_prefill(x: Generation) -> None:
    """No prefill replica can be used: decode alone where the policy says so, else say it."""
    if x.service.table.on_prefill_failure != "decode-locally":
        x.service.tally.cells[Total.REFUSED_NO_REPLICA] += 1
        raise RefusedError(503, "no prefill engine is available", retry_after=2)
    x.fall_back()
