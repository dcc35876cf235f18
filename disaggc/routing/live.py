"""A table of administration as it outlives a restart: beside the routing file, with the file that it was made from.

The proxy writes and reads it; `build` reads its generation where it can see it. What of it outlives a different file is
decided here: drains, and nothing else. Knows no disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from disaggc.ir.canonical import digest
from disaggc.ir.plan import Role
from disaggc.routing.limits import Count, Name, Part
from disaggc.routing.roles import seats
from disaggc.routing.table import ReplicaState, RoutingTable, dump_table

SUFFIX = ".live"
"""What the name of the routing file is followed by."""


class FileMark(Part):
    """A routing file as it was read: its number, and what tells it from every other."""

    generation: Count
    """Its generation."""
    digest: str
    """Of its table in canonical text: another spelling of the same table is the same file."""


class LiveTable(Part):
    """The content of a `.live` file."""

    made_from: FileMark
    """The routing file that was in effect before administration spoke."""
    table: RoutingTable
    """What administration put in effect."""
    drained: tuple[Name, ...] = ()
    """Replicas that administration drained, rather than the file."""


def mark_of(table: RoutingTable) -> FileMark:
    """The mark of a routing file's table, read as it stands there."""
    return FileMark(generation=table.generation, digest=digest(dump_table(table)))


def live_path(routing_file: Path) -> Path:
    """Where the table of administration stands."""
    return routing_file.with_name(f"{routing_file.name}{SUFFIX}")


def draining(table: RoutingTable) -> frozenset[str]:
    """Addresses of the replicas that get nothing new."""
    every = (replica for pool in table.pools for replica in pool.replicas)
    return frozenset(replica.address for replica in every if replica.state is ReplicaState.DRAINING)


def carried(file: RoutingTable, before: RoutingTable, drained: Collection[str]) -> RoutingTable:
    """A file's table, with the replicas still drained that administration had drained under the table before it.

    Only where an address still means the same engine, by host and port. A role that had somebody to serve keeps
    somebody: where nobody else is left in the file, its drains end.
    """
    places = {
        r.address: (r.host, r.port) for pool in before.pools for r in pool.replicas if r.address in drained
    }
    stay = {
        r.address for pool in file.pools for r in pool.replicas if places.get(r.address) == (r.host, r.port)
    }
    for role in Role:
        left = set(_active(file, role))
        if left and left <= stay and any(_active(before, role)):
            stay -= left
    if stay <= draining(file):
        return file
    pools = tuple(
        pool.model_copy(
            update={
                "replicas": tuple(
                    r.model_copy(update={"state": ReplicaState.DRAINING}) if r.address in stay else r
                    for r in pool.replicas
                )
            }
        )
        for pool in file.pools
    )
    return file.model_copy(update={"pools": pools})


def _active(table: RoutingTable, role: Role) -> Iterator[str]:
    for seat in seats(table):
        if seat.role is role and seat.entry.state is ReplicaState.ACTIVE:
            yield seat.entry.address
