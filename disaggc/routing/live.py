"""A table of administration as it outlives a restart: beside the routing file, with the file that it was made from.

The proxy writes and reads it; `build` reads its generation where it can see it. Knows no disk.
"""

from __future__ import annotations

from pathlib import Path

from disaggc.ir.canonical import digest
from disaggc.routing.limits import Count, Part
from disaggc.routing.table import RoutingTable, dump_table

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


def mark_of(table: RoutingTable) -> FileMark:
    """The mark of a routing file's table, read as it stands there."""
    return FileMark(generation=table.generation, digest=digest(dump_table(table)))


def live_path(routing_file: Path) -> Path:
    """Where the table of administration stands."""
    return routing_file.with_name(f"{routing_file.name}{SUFFIX}")
