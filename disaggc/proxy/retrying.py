"""What may follow a failed try: another prefill, another decode, decode alone, a wait, or the end. Knows no bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.proxy.board import Total
from disaggc.proxy.failures import LegError, RefusedError
from disaggc.proxy.waiting import LONGEST_PAUSE_S, PAUSE_S, RETRY_AFTER_S

if TYPE_CHECKING:
    from disaggc.proxy.generation import Generation


def next_try(x: Generation, error: LegError, now: float) -> bool:
    """Prepare another try: whether it is for now, or the request waits for an engine. RefusedError where there is none.

    A try that reached no engine is none: where nobody else is left to be asked, the request waits instead.
    """
    table = x.service.table
    over = now >= x.last
    if error.prefill:
        x.tried |= {x.entry.prefill}
        if table.on_prefill_failure == "error" or over:
            raise _refusal(error)
        if table.on_prefill_failure == "decode-locally":
            x.fall_back()
            return True
    elif over:
        raise _refusal(error)
    else:
        x.tried |= {x.entry.decode}
    if not error.sent and (x.tries >= table.retries or not _another(x, error, now)):
        x.wait(prefill=error.prefill, now=now)
        return False
    if x.tries >= table.retries:
        raise _refusal(error)
    x.tries += 1
    x.entry.retries = x.tries
    if not error.prefill:
        # decode may have failed only because prefill, dead meanwhile, never delivered
        x.tried |= {x.entry.prefill}
        if not _move_elsewhere(x, now):
            return False
        untried = x.holding.address not in x.tried
    else:
        untried = _another(x, error, now)
    return (untried and x.tries == 1) or _pause(x, error, now)


def _pause(x: Generation, error: LegError, now: float) -> bool:
    """Before the same engine is next, or a third one: a moment, longer each time.

    Engines that are stopped together answer with errors before they refuse connections: tries on one after the other
    would be used up in a blink, while a refused connection is waited for.
    """
    seconds = min(LONGEST_PAUSE_S, PAUSE_S * 2 ** (x.tries - 1))
    if now + seconds >= x.last:
        raise _refusal(error)
    x.wait_before(seconds, now)
    return False


def _refusal(error: LegError) -> RefusedError:
    side = "prefill" if error.prefill else "decode"
    retry_after = RETRY_AFTER_S if error.status == 503 else None
    return RefusedError(error.status, f"{side} failed: {error.reason}", retry_after=retry_after)


def _another(x: Generation, error: LegError, now: float) -> bool:
    """Whether a replica of that role is left that this request has not tried."""
    fleet = x.service.fleet
    role = fleet.prefills if error.prefill else fleet.servers
    return any(r.address not in x.tried and r.available(now) for r in role)


def _move_elsewhere(x: Generation, now: float) -> bool:
    """Another decode replica, an untried one if there is any; whether there is one now."""
    fleet = x.service.fleet
    untried = [r for r in fleet.servers if r.address not in x.tried]
    other = fleet.choose(untried, fleet.for_decode, now=now) or fleet.choose(
        fleet.soundest(fleet.servers, now), fleet.for_decode, now=now
    )
    if other is None:
        x.wait(prefill=False, now=now)
        return False
    x.move_to(other)
    return True


def without_prefill(x: Generation, now: float) -> bool:
    """No prefill replica can be used: whether decode alone is for now, as the policy says, or the request waits.

    Under `error` it waits too where another request is trying the only one: nothing has failed this request yet.
    """
    policy = x.service.table.on_prefill_failure
    if policy == "decode-locally":
        x.fall_back()
        return True
    if policy == "error" and not any(r.there for r in x.service.fleet.prefills):
        x.service.tally.cells[Total.REFUSED_NO_REPLICA] += 1
        raise RefusedError(503, "no prefill engine is available", retry_after=RETRY_AFTER_S)
    x.wait(prefill=True, now=now)
    return False
