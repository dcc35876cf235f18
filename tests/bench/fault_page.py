"""The fault matrix as text: one table for each dialect, and the page docs/benchmarks/fault-matrix.md around them."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

from disaggc.routing.table import Dialect
from tests.bench.fault_cell import Cell
from tests.bench.fault_rows import ALL_DIALECTS, COLUMNS, ROWS, Row
from tests.bench.fault_stack import DEADLINE_S
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "benchmarks" / "fault-matrix.md"
HEAD = "| fault | " + " | ".join(COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|"
TITLES = {
    Dialect.NIXL: "NIXL pull", Dialect.NIXL_PUSH: "NIXL push", Dialect.MOONCAKE: "Mooncake",
    Dialect.MORIIO_READ: "MoRIIO read", Dialect.MORIIO_WRITE: "MoRIIO write",
}  # fmt: skip


@dataclass
class Result:
    """A whole run."""

    cells: list[Cell] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What was open 30 s after a stack's last cell."""
    broken: list[str] = field(default_factory=list)
    """Rows that could not be done."""
    skipped: list[str] = field(default_factory=list)
    stacks: int = 0
    side_by_side: int = 0
    commit: str = ""
    """What the tree was at when it began."""
    is_compiled: bool = False
    """Whether the proxy was the package as its wheel installs it, or the checkout."""
    minutes: float = 0.0
    load: tuple[float, ...] = ()
    """1 min load average at the begin and the end."""

    @property
    def bad(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.faults]

    @property
    def good(self) -> bool:
        return bool(self.cells) and not (self.bad or self.left or self.broken)

    def tables(self) -> str:
        """One for each dialect."""
        done = {Dialect(cell.dialect) for cell in self.cells}
        return "\n\n".join(self._table(dialect) for dialect in ALL_DIALECTS if dialect in done)

    def _table(self, dialect: Dialect) -> str:
        lines = [f"## {TITLES[dialect]}", "", HEAD]
        for row in ROWS:
            found = [c for c in self.cells if (c.row, c.dialect) == (row.name, dialect.value)]
            if found or dialect not in row.dialects:
                lines.append(line(row, dialect, found))
        return "\n".join(lines)

    def summary(self) -> str:
        """The figures of all cells together, and what was not good."""
        retries = sum(cell.retries for cell in self.cells)
        blocks = sum(cell.left[0] for cell in self.cells)
        sockets = sum(cell.left[1] for cell in self.cells)
        slowest = max((cell.seconds for cell in self.cells), default=0.0)
        figures = f"{retries} retries, {blocks} blocks left, {sockets} sockets open after 30 s"
        load = " -> ".join(f"{load:.1f}" for load in self.load)
        said = [
            f"{len(self.cells)} cells, {len(self.bad)} fail; {figures}; slowest answer {slowest} s, deadline {DEADLINE_S} s.",
            f"Open 30 s after the last cells of {self.stacks} stacks: {'; '.join(self.left) or 'nothing'}.",
            f"{self.minutes:.1f} min, {self.side_by_side} stacks side by side on {os.cpu_count()} cores; load average {load}.",
        ]
        said += [f"- {c.row}, {c.dialect}, {c.column}: {'; '.join(c.faults)}" for c in self.bad]
        said += [f"- not done: {what}" for what in self.broken]
        if self.skipped:
            said.append(f"- skipped: {', '.join(self.skipped)}")
        return "\n".join(said)

    def page(self) -> str:
        """The kept page."""
        today = dt.datetime.now(tz=dt.UTC).date()
        proxy = "compiled, as its wheel installs it" if self.is_compiled else "interpreted"
        tried = f"`python -m tests.bench.fault_matrix --write`, {today}, commit {self.commit}, proxy {proxy}."
        parts = [TITLE, tried, self.summary(), EXPLAINED, self.tables(), NOTES]
        return "\n\n".join(parts) + "\n"


def line(row: Row, dialect: Dialect, found: Iterable[Cell]) -> str:
    """One line of a table, or why there is none."""
    if dialect not in row.dialects:
        return f"| {row.name} | not here: {row.why_not} |" + " - |" * (len(COLUMNS) - 1)
    texts: dict[str, list[str]] = {}
    for cell in found:
        texts.setdefault(cell.column, []).append(cell.text())
    return f"| {row.name} | " + " | ".join("; ".join(texts.get(c, ["-"])) for c in COLUMNS) + " |"


def commit() -> str:
    """What the tree is at."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "unknown"


TITLE = "# What clients see when something breaks"
EXPLAINED = """\
The real proxy in front of two prefill and two decode doubles, each a process of its own. In every cell one streamed request is
sent, one thing goes wrong at one moment, and everything is looked at afterwards.

A cell says what the client saw and then three figures: `retries/blocks/sockets`.

- `ok` is an answer whole and word for word right. An `error event` ends a stream whose first bytes were out, as an SSE event.
  `connection lost` and `CUT` are allowed only where the process that holds the client's connection was killed.
- retries: how often the proxy began anew, as its access log tells it (its counter where the worker was killed).
- blocks: pinned or leaked on the four doubles when every lease is over.
- sockets: those the proxy's workers still have 30 s after the request with the fault lasting, and those at the engines' HTTP ports
  once it is over. 0 means that there was a moment within those 30 s with none open; they are not waited for any longer then.
- `-`: the moment does not exist for this fault or dialect.

A cell fails, and is marked so, when the fault did not happen at its moment, when a request is lost that could have been tried again,
when it takes longer than its deadline, when a word is wrong, when a block stays or a sequence goes on running, or when a socket stays
open. Before each cell both pairs have answered at the first try. All sockets are looked at once more 30 s after the last cell of each
stack.

| moment | what is going on |
|---|---|
| before leg 1 | the engine is broken before the request comes |
| during leg 1 | prefill is computing the prompt |
| between legs | prefill has answered and keeps the KV; decode has not fetched it |
| before first byte | decode is fetching KV or computing its first word |
| mid-stream | words have gone out to the client |

In NIXL push, Mooncake and MoRIIO write both legs run at once, so nothing is between them. These, and MoRIIO read, are tried on the
double only."""
NOTES = """\
## Notes

- `engine ...` rows strike the engine that has the request at that moment: prefill until it has answered, then decode.
- No retry is needed, and none made, where the fault comes too late for the request: prefill is struck when its KV has gone over;
  an engine refuses connections when it has the request already. Where the legs run at once, a prefill that computes but never
  answers (`request hangs`, `half-open connection`, during leg 1) costs nothing: decode gets its KV all the same.
- `SIGSTOP` leaves the machine's kernel answering for a process that does not run. `cable pulled` puts every engine into a network
  namespace of its own and takes the link down: packets vanish and nobody is told. `KV link cut` lets only the packets between
  prefill and decode vanish. These need root and `ip`; without them the rows are skipped, and it says so.
- A process of the proxy that is killed before the request comes: the workers' socket belongs to the control process, so clients wait
  for the next worker. Without a control process nobody listens, which is for the service manager or a second proxy.
- `prefill names other blocks` and `leases expire, blocks are reused` cannot be seen by any proxy in one request: the engine answers
  with wrong words and a 200. Canaries find them: the pair hands nothing over any more after `eject_after` of them
  (`tests/proxy/test_canaries.py`), and `disaggc smoke` looks for it before traffic comes."""
