"""`disaggc.local/v1`: what `disaggc local up` and `local status` print with `--format json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from disaggc.cli.local_routing import RoutingState
from disaggc.cli.local_stack import ProgramStatus
from disaggc.cli.views.document import Document, Item


class LocalProgramItem(Item):
    """One process."""

    name: str
    """Program of the supervisord configuration; its log is `run/<name>.log`."""
    address: str
    """Plan address, `service/role/index`."""
    kind: Literal["engine", "proxy"]
    """What it does."""
    state: str
    """supervisord's word for it, or `down`."""
    ready: bool
    """Whether it serves."""
    answer: Literal["ready", "refused", "silent", "unready"] | None
    """What its address said: 200, no connection, nothing in time, another answer; null where it was not asked."""
    ends: int
    """Times it ended unasked since the stack came up; supervisord starts it again."""
    pid: int | None
    """Process id; null when it does not run."""
    up_s: float
    """Seconds since its start."""
    url: str | None
    """Address it answers at; null for one that serves nothing itself."""
    faults: str | None
    """Where the faults of an engine double are switched on, and its `/state` is; null for what is none."""


class LocalRoutingItem(Item):
    """The routing of one service."""

    service: str
    """Its name."""
    file_generation: int | None
    """Of the routing file; null where it cannot be read."""
    generation: int | None
    """In effect; another than the file's where administration changed the table; null where the proxy does not say."""
    in_effect: bool
    """Whether the file as it is now is in effect, or what administration made of it."""
    refusal: str | None
    """Why not, where the proxy refused it; null where it did not, or was not asked yet."""


class LocalDocument(Document):
    """Output of `disaggc local up|status --format json`."""

    schema_: Annotated[Literal["disaggc.local/v1"], Field(alias="schema")] = "disaggc.local/v1"
    """Name and version of this format."""
    folder: str
    """The built folder as given."""
    ready: bool
    """Whether every process serves."""
    programs: tuple[LocalProgramItem, ...]
    """The processes, engines first."""
    routing: tuple[LocalRoutingItem, ...]
    """The routing of every service; empty where nothing runs."""


def local_document(
    found: Sequence[ProgramStatus], routing: Sequence[RoutingState], folder: Path
) -> LocalDocument:
    """The processes and their routing as they are."""
    return LocalDocument(
        folder=str(folder),
        ready=all(one.ready for one in found),
        programs=tuple(
            LocalProgramItem(
                name=one.program.name,
                address=one.program.address,
                kind=one.program.kind,
                state=one.state,
                ready=one.ready,
                answer=one.answer,
                ends=one.ends,
                pid=one.pid,
                up_s=one.up_s,
                url=one.program.ready.rpartition("/")[0] if one.program.ready else None,
                faults=one.program.faults,
            )
            for one in found
        ),
        routing=tuple(
            LocalRoutingItem(
                service=one.service,
                file_generation=one.file,
                generation=one.in_effect,
                in_effect=one.good,
                refusal=one.refusal,
            )
            for one in routing
        ),
    )
