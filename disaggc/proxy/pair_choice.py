"""Which prefill replica hands over to which decode replica: only within a cohort, untried ones first.

Knows load and cohorts, not requests.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from disaggc.proxy.fleet import Fleet, Replica

Pair = tuple[Replica, Replica]
"""A prefill and a decode replica of one cohort."""


def choose_pair(
    fleet: Fleet, decode: Replica, *, tried: AbstractSet[str], prefix: bytes, now: float
) -> Pair | None:
    """A prefill replica for this decode; decode moves to another cohort where only that has an untried one."""
    if not tried:
        # Nearly always: one look at this decode's own cohort.
        prefill = fleet.choose(fleet.prefills_for(decode), fleet.for_prefill, now=now, prefix=prefix)
        if prefill is not None:
            return prefill, decode
    for skip in (tried, frozenset[str]()) if tried else (tried,):
        prefill = _prefill_for(fleet, decode, skip, now=now, prefix=prefix)
        if prefill is not None:
            return prefill, decode
        with_prefill = [
            r for r in fleet.decodes if _prefill_for(fleet, r, skip, now=now, prefix=prefix) is not None
        ]
        other = fleet.choose(with_prefill, fleet.for_decode, now=now)
        prefill = _prefill_for(fleet, other, skip, now=now, prefix=prefix) if other is not None else None
        if other is not None and prefill is not None:
            return prefill, other
    return None


def _prefill_for(
    fleet: Fleet, decode: Replica, skip: AbstractSet[str], *, now: float, prefix: bytes
) -> Replica | None:
    among = fleet.prefills_for(decode)
    among = [r for r in among if r.address not in skip] if skip else fleet.soundest(among, now)
    return fleet.choose(among, fleet.for_prefill, now=now, prefix=prefix)
