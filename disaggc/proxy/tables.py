"""The routing file, which is only read, and beside it the newer table that administration put in effect.

A table that came over administration must outlive a restart of the proxy: the old one may name engines that are gone.
It stands in `<file>.live`, so that the operator's own file stays as it was written.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path

from disaggc.routing.limits import Listen
from disaggc.routing.table import RoutingTable, TableError, dump_table, load_table

_LOG = logging.getLogger(__name__)


class RoutingFile:
    """One proxy's routing file. None = the table has no file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.kept = True
        """Whether the table in effect will be there after a restart."""
        self.rejected: str | None = None
        """Why the file as it was last written is not in effect; None when it is, or was before administration."""
        self.refusals = {"file": 0, "admin": 0}
        """Tables that were not put in effect, by where they came from."""
        self._seen: tuple[int, int, int] | None = None
        self._seen = self._stamp()
        self._listen = self._listening()

    def changed(self) -> bool:
        """Whether it is another file than at the last look."""
        stamp = self._stamp()
        changed = stamp != self._seen
        self._seen = stamp
        return self.path is not None and changed

    def read(self, current: RoutingTable) -> RoutingTable:
        """The file's table, with addresses as they are in use; TableError or OSError."""
        if self.path is None:
            raise TableError("there is no routing file")
        table = load_table(self.path.read_bytes())
        if table.service != current.service:
            raise TableError(f"it is of service `{table.service}`, this proxy serves `{current.service}`")
        if table.listen != self._listen:
            _LOG.warning("`listen` of the routing file has changed, which takes a restart; the rest is used")
        return table.model_copy(update={"listen": current.listen})

    def _listening(self) -> Listen | None:
        try:
            return None if self.path is None else load_table(self.path.read_bytes()).listen
        except (OSError, TableError):
            return None

    def reject(self, reason: str) -> None:
        """The file is not used."""
        self.rejected = reason
        self.refusals["file"] += 1
        _LOG.error("the routing file is not used: %s", reason)

    def accept(self) -> None:
        """The file is in effect: what administration said before is overtaken."""
        self.rejected, self.kept = None, True
        if self.path is not None:
            with suppress(OSError):
                _live(self.path).unlink(missing_ok=True)

    def keep(self, table: RoutingTable) -> None:
        """Write down a table of administration; the folder may be one that cannot be written, e.g. a ConfigMap."""
        if self.path is None:
            return
        live = _live(self.path)
        beside = live.with_name(f"{live.name}.{os.getpid()}")
        try:
            beside.write_text(dump_table(table))
            beside.replace(live)
        except OSError as problem:
            self.kept = False
            _LOG.warning("generation %d will not outlive a restart: %s", table.generation, problem)
        else:
            self.kept = True

    def _stamp(self) -> tuple[int, int, int] | None:
        if self.path is None:
            return None
        try:
            stat = self.path.stat()
        except OSError:
            return self._seen
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


def newest(path: Path) -> RoutingTable:
    """What a proxy starts with: the file, or a later table of administration beside it. TableError or OSError."""
    table = load_table(path.read_bytes())
    live = _live(path)
    try:
        put = load_table(live.read_bytes())
    except FileNotFoundError:
        return table
    except (OSError, TableError) as problem:
        _LOG.warning("%s is not used: %s", live, problem)
        return table
    if put.service != table.service or put.generation <= table.generation:
        return table
    _LOG.warning(
        "generation %d from %s is in effect, %s has %d: raise it above, or remove the other file, to go back to it",
        put.generation, live, path, table.generation,
    )  # fmt: skip
    return put.model_copy(update={"listen": table.listen})


def _live(path: Path) -> Path:
    return path.with_name(f"{path.name}.live")
