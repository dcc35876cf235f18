"""The routing file, which is only read, and beside it the table that administration put in effect.

A table that came over administration must outlive a restart of the proxy: the old one may name engines that are gone.
It stands in `<file>.live`, so that the operator's own file stays as it was written, with the mark of the file that it
was made from: once that file was replaced by a different one, the operator has spoken last. Drains alone stay: who
writes files does not know of them, and an engine is drained for reasons of its own.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path

from disaggc.routing.limits import Listen
from disaggc.routing.live import FileMark, LiveTable, carried, draining, live_path, mark_of
from disaggc.routing.table import RoutingTable, load_table
from disaggc.routing.text import TableError, dumped, loaded

_LOG = logging.getLogger(__name__)


class RoutingFile:
    """One proxy's routing file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kept = True
        """Whether the table in effect will be there after a restart."""
        self.rejected: str | None = None
        """Why the file as it was last written is not in effect; None when it is, or was before administration."""
        self.refusals = {"file": 0, "admin": 0}
        """Tables that were not put in effect, by where they came from."""
        self.taken: FileMark | None = None
        """The file that is in effect, or was before administration spoke; None before the first."""
        self.judged: str | None = None
        """SHA-256, hex, of the bytes that were taken or rejected last."""
        self._seen: tuple[int, int, int] | None = None
        self._listen: Listen | None = None
        self._read: RoutingTable | None = None
        self._own: frozenset[str] = frozenset()
        """Replicas that the file itself drains: another file takes them back."""
        self._bytes: str | None = None

    def start(self) -> RoutingTable:
        """What a proxy starts with: the file, or what administration made of just this file. TableError or OSError."""
        self._seen = self._stamp()
        table = self._load()
        self._listen = table.listen
        self.taken, self.judged, self._own = mark_of(table), self._bytes, draining(table)
        put = _administered(live_path(self.path), self.taken, table)
        if put is None:
            return table
        if put.made_from == self.taken:
            return put.table.model_copy(update={"listen": table.listen})
        return self._standing(table, carried(table, put.table, put.drained))

    def changed(self) -> bool:
        """Whether it is another file than at the last look."""
        stamp = self._stamp()
        changed = stamp != self._seen
        self._seen = stamp
        return changed

    def read(self, current: RoutingTable) -> RoutingTable | None:
        """The file's table, with addresses as they are in use; TableError or OSError.

        None where the file is still, or again, the one in effect: what administration made of it stays. A different one
        needs a generation above that file's, not above those of administration, which who writes files cannot know.
        """
        table = self._load()
        if table.service != current.service:
            raise TableError(f"it is of service `{table.service}`, this proxy serves `{current.service}`")
        if mark_of(table) == self.taken:
            self.rejected, self.judged = None, self._bytes
            return None
        if self.taken is not None and table.generation <= self.taken.generation:
            raise TableError(
                f"generation {table.generation} is not above {self.taken.generation}, that of the file before it"
            )
        if table.listen != self._listen:
            _LOG.warning("`listen` of the routing file has changed, which takes a restart; the rest is used")
        self._read = table
        return table.model_copy(update={"listen": current.listen})

    def with_drains(self, table: RoutingTable, current: RoutingTable) -> RoutingTable:
        """The file's table as `read` gave it, with the drains of administration that the table in effect has."""
        return carried(table, current, draining(current) - self._own)

    def _load(self) -> RoutingTable:
        self._bytes = None
        content = self.path.read_bytes()
        self._bytes = hashlib.sha256(content).hexdigest()
        return load_table(content)

    def reject(self, reason: str) -> None:
        """The file is not used."""
        self.rejected, self.judged = reason, self._bytes
        self.refusals["file"] += 1
        _LOG.error("the routing file is not used: %s", reason)

    def accept(self, table: RoutingTable) -> None:
        """The file as last read is in effect, as this table: of what administration said before only drains stay."""
        if self._read is None:
            raise RuntimeError("a file was accepted that nobody read")
        self.rejected, self.kept, self.judged = None, True, self._bytes
        self.taken, self._own = mark_of(self._read), draining(self._read)
        self._standing(self._read, table)

    def _standing(self, file: RoutingTable, table: RoutingTable) -> RoutingTable:
        """A file took the place of another, with the drains that stay."""
        stay = sorted(draining(table) - draining(file))
        if stay:
            _LOG.warning("%s: still drained, over administration; `undrain` takes them back", ", ".join(stay))
            self.keep(table)
        else:
            with suppress(OSError):
                live_path(self.path).unlink(missing_ok=True)
        return table

    def keep(self, table: RoutingTable) -> None:
        """Write down a table of administration; the folder may be one that cannot be written, e.g. a ConfigMap."""
        if self.taken is None:
            return
        live = live_path(self.path)
        beside = live.with_name(f"{live.name}.{os.getpid()}")
        try:
            drained = tuple(sorted(draining(table) - self._own))
            beside.write_text(dumped(LiveTable(made_from=self.taken, table=table, drained=drained)))
            beside.replace(live)
        except OSError as problem:
            self.kept = False
            _LOG.warning("generation %d will not outlive a restart: %s", table.generation, problem)
        else:
            self.kept = True

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = self.path.stat()
        except OSError:
            return self._seen
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _administered(live: Path, mark: FileMark, table: RoutingTable) -> LiveTable | None:
    """What administration made of the file with this mark and table, or of the one before it; None where nothing."""
    try:
        put = loaded(LiveTable, live.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, TableError) as problem:
        _LOG.warning("%s is not used: %s", live, problem)
        return None
    if put.table.service != table.service:
        _LOG.warning("%s is not used: it is of service `%s`", live, put.table.service)
        return None
    if put.made_from != mark:
        _LOG.warning(
            "%s is overtaken: administration made it (generation %d) from another file than the one now there, which "
            "is in effect (generation %d)", live, put.table.generation, mark.generation,
        )  # fmt: skip
        return put
    _LOG.warning(
        "generation %d from %s is in effect, made from the file of generation %d: a file with a higher one replaces it",
        put.table.generation, live, mark.generation,
    )  # fmt: skip
    return put
