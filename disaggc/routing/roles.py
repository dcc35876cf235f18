"""Who may serve what: effective roles of a table's replicas, and the path a request takes.

A flexible pool's replicas are prefill or decode by the table alone (in NIXL the role belongs to the request), so a new
ratio is a new table. Knows no load.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from disaggc.ir.plan import Role
from disaggc.routing.table import PoolEntry, ReplicaEntry, RoutingTable


@dataclass(frozen=True, slots=True)
class Seat:
    """A replica in its effective role: prefill, decode or colocated."""

    entry: ReplicaEntry
    role: Role
    pool: str


def seats(table: RoutingTable) -> tuple[Seat, ...]:
    """Every replica with the role it has under this table; a flexible pool's unnamed rest decodes."""
    return tuple(seat for pool in table.pools for seat in _pool_seats(pool))


def _pool_seats(pool: PoolEntry) -> tuple[Seat, ...]:
    if pool.role is not Role.FLEXIBLE:
        return tuple(Seat(entry, pool.role, pool.address) for entry in pool.replicas)
    prefills = pool.split[0] if pool.split else 0
    return tuple(
        Seat(entry, Role.PREFILL if position < prefills else Role.DECODE, pool.address)
        for position, entry in enumerate(pool.replicas)
    )


class Path(StrEnum):
    """How a request is served."""

    REMOTE = "remote"
    """Prefill on one replica, decode on another."""
    LOCAL = "local"
    """The decode replica prefills too."""


def break_even(*, skip_below: int, block_size: int) -> int:
    """Uncached tokens from which on KV is handed over; below one block there is nothing to hand over."""
    return max(skip_below, block_size)


def path_for(*, uncached_tokens: float, skip_below: int, block_size: int) -> Path:
    """LOCAL below the break-even."""
    least = break_even(skip_below=skip_below, block_size=block_size)
    return Path.LOCAL if uncached_tokens < least else Path.REMOTE
