"""disaggc.lock: which layout was chosen, so that an upgrade of disaggc alone never moves a GPU.

Written as YAML of one fixed order, one line a replica, to be read in a review; read back by the spec's own YAML reader,
so that a broken lock is reported with its place. Knows no solver: what a lock means is decided there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from disaggc.diagnostics import Diagnostic, Outcome, Severity, SourceSpan, path_text
from disaggc.ir.plan import Shape
from disaggc.spec.files import Reader, Unreadable, decode, read_file
from disaggc.spec.findings import finding
from disaggc.spec.tree import SourceMap, plain
from disaggc.spec.yaml_source import parse

LOCK_LIMIT = 4 * 2**20
"""Largest lock that is read, in bytes."""
_HELP = "remove it; `disaggc build` writes a new one"
_HEADER = (
    "# Written by disaggc: the layout that was chosen. Kept while it is feasible; `--upgrade` solves anew.\n"
)


class LockPart(BaseModel):
    """A piece of the lock: frozen, no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LockedSlot(LockPart):
    """The devices that one node gives to a replica."""

    node: Annotated[str, Field(min_length=1)]
    """Node name."""
    devices: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False, min_length=1)]
    """Device numbers on it."""


Placement = Annotated[tuple[Annotated[tuple[LockedSlot, ...], Field(strict=False)], ...], Field(strict=False)]
"""One entry a replica, in the order of their numbers: its nodes, leader first."""


class LockedPool(LockPart):
    """Identical replicas of one role."""

    role: Literal["prefill", "decode", "colocated", "flexible"]
    """What they do."""
    group: str
    """Node group they stand on."""
    accelerator: str
    """Accelerator id."""
    shape: Annotated[Shape, Field(strict=False)]
    """How one replica is spread."""
    replicas: Annotated[int, Field(ge=1)]
    """How many."""
    batch: Annotated[float, Field(ge=0)]
    """Requests in flight on one replica at the planned operating point."""
    max_num_seqs: Annotated[int, Field(ge=1)]
    """Limit of requests in flight that was pinned."""
    placement: Placement
    """Where every replica stands."""


class LockedService(LockPart):
    """The layout of one service."""

    mode: Literal["disaggregated", "colocated", "flexible"]
    """Which mode was chosen."""
    ratio: str
    """For people: `1P4D`, `5C`."""
    engine: str
    """VLLM version the layout was planned for."""
    pools: Annotated[tuple[LockedPool, ...], Field(strict=False, min_length=1)]
    """Its pools."""


class Lock(LockPart):
    """What one compile chose, and from which facts."""

    version: Literal[1] = 1
    """Version of the file's form."""
    disaggc: str
    """Version that wrote it."""
    spec: str
    """Digest of the resolved spec."""
    catalog: str
    """Digest of the facts that were used."""
    services: Mapping[str, LockedService]
    """Layouts by service name."""


def write_lock(lock: Lock) -> str:
    """The file's text: the same lock gives the same bytes."""
    return _HEADER + "\n".join(_lines(lock)) + "\n"


def _lines(lock: Lock) -> Iterator[str]:
    yield f"version: {lock.version}"
    for name in ("disaggc", "spec", "catalog"):
        yield f"{name}: {_text(getattr(lock, name))}"
    yield "services:" if lock.services else "services: {}"
    for name in sorted(lock.services):
        service = lock.services[name]
        yield f"  {_text(name)}:"
        for key in ("mode", "ratio", "engine"):
            yield f"    {key}: {_text(getattr(service, key))}"
        yield "    pools:"
        for pool in service.pools:
            yield from _pool_lines(pool)


def _pool_lines(pool: LockedPool) -> Iterator[str]:
    shape = ", ".join(f"{key}: {degree}" for key, degree in pool.shape.model_dump().items())
    yield f"      - role: {pool.role}"
    yield f"        group: {_text(pool.group)}"
    yield f"        accelerator: {_text(pool.accelerator)}"
    yield f"        shape: {{{shape}}}"
    yield f"        replicas: {pool.replicas}"
    yield f"        batch: {pool.batch!r}"
    yield f"        max_num_seqs: {pool.max_num_seqs}"
    yield "        placement:" if pool.placement else "        placement: []"
    for replica in pool.placement:
        slots = (f"{{node: {_text(slot.node)}, devices: {list(slot.devices)}}}" for slot in replica)
        yield f"          - [{', '.join(slots)}]"


def _text(value: str) -> str:
    """Always quoted and in ASCII: no text changes what a line means."""
    return '"' + "".join(_character(character) for character in value) + '"'


def _character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if " " <= character <= "~":
        return character
    return f"\\u{ord(character):04x}" if character <= "\uffff" else f"\\U{ord(character):08x}"


def read_lock(path: Path, read: Reader = read_file) -> Outcome[Lock]:
    """The lock in a file; a file that does not exist gives no value and no finding. DGC701 otherwise."""
    if not path.exists() and not path.is_symlink():
        return Outcome(None)
    content = read(path, LOCK_LIMIT)
    text = decode(content) if isinstance(content, bytes) else content
    if isinstance(text, Unreadable):
        span = SourceSpan(str(path), text.line, text.column, text.line, text.column)
        return Outcome(None, (finding("DGC701", text.message, span, help=text.help or _HELP),))
    return parse_lock(text, str(path))


def parse_lock(text: str, file: str) -> Outcome[Lock]:
    """The lock in a text, or one DGC701 that says where it is broken."""
    outcome = parse(text, file)
    if outcome.value is None or outcome.diagnostics:
        first = outcome.diagnostics[0]
        message = f"the lock is not readable: {first.message}"
        return Outcome(None, (Diagnostic("DGC701", Severity.ERROR, message, span=first.span, help=_HELP),))
    root = outcome.value.root
    try:
        return Outcome(Lock.model_validate(plain(root)))
    except ValidationError as problem:
        first_error = problem.errors(include_url=False)[0]
        where = tuple(part for part in first_error["loc"])
        reason = first_error["msg"][:1].lower() + first_error["msg"][1:]
        message = f"the lock is malformed at `{path_text(where) or 'the top'}`: {reason}"
        if where == ("version",):
            message = "the lock has another version than 1; another disaggc wrote it"
        return Outcome(None, (finding("DGC701", message, SourceMap(root).value(where), help=_HELP),))
