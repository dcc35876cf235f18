"""One cell of the fault matrix: one request, one fault, what the client saw, and what is left behind."""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from disaggc.routing.table import Dialect
from tests.bench.fault_left import folder_of
from tests.bench.fault_network import Network
from tests.bench.fault_rows import MOMENTS, Row
from tests.bench.fault_stack import DEADLINE_S, LEASE_S, Seen, Stack, expected_text
from tests.ports import own_block

SETTLE_S = LEASE_S + 4.0
"""After this long no block may be kept for anybody."""
SOCKETS_S = 30.0
"""After this long nothing may be open any more."""


@dataclass
class Cell:
    """What came of one fault at one moment."""

    row: str
    dialect: str
    column: str
    outcome: str
    seconds: float
    """Until the client had its answer."""
    retries: int
    pinned_blocks: int
    """Still kept for a decode when every lease is over."""
    leaked_blocks: int
    """Of nobody."""
    running: int
    sockets_in_proxy: int
    """Those its workers never were without in 30 s after the request, with the fault still there."""
    sockets_at_engines: int
    """The same once the fault is over."""
    struck: bool
    """Whether the fault happened, and at its moment."""
    faults: list[str] = field(default_factory=list)

    @property
    def left(self) -> tuple[int, int]:
        """(blocks, sockets)."""
        return self.pinned_blocks + self.leaked_blocks, self.sockets_in_proxy + self.sockets_at_engines

    def text(self) -> str:
        """outcome retries/blocks/sockets."""
        blocks, sockets = self.left
        bad = " **FAIL**" if self.faults else ""
        return f"{self.outcome} {self.retries}/{blocks}/{sockets}{bad}"


def cell(stack: Stack, row: Row, column: str) -> Cell:
    """One request, one fault, and what is left after the leases are over."""
    request = f"cell-{time.monotonic_ns()}"
    prompt = f"{row.name} {column} {request} " * 8
    expected, seen = expected_text(prompt), Seen()
    before = stack.metric("retries_total")
    act = row.arm(stack, column)
    thread = threading.Thread(target=stack.send, args=(prompt, seen), kwargs={"request": request})
    thread.start()
    struck = act is None or moment_comes(stack, seen, column, thread=thread)
    if act is not None:
        act(stack)
    thread.join(DEADLINE_S + 3)
    held = let_go(stack)
    struck &= not any(engine.state.get("on") for engine in stack.engines.values())
    said = stack.logged(request)
    # where the worker that knew is gone, its counters are not
    retries = said["retries"] if said is not None else max(0, int(stack.metric("retries_total") - before))
    for engine in stack.engines.values():
        engine.well()
    rest = settle(stack)
    found = Cell(
        row.name, stack.dialect.value, column, seen.outcome(expected), round(seen.seconds, 2), retries,
        pinned_blocks=rest["pinned"], leaked_blocks=rest["leaked"], running=rest["running"],
        sockets_in_proxy=held, sockets_at_engines=rest["sockets"], struck=struck,
    )  # fmt: skip
    found.faults = judge(found, row)
    return found


def moment_comes(stack: Stack, seen: Seen, column: str, *, thread: threading.Thread) -> bool:
    """Waits for a moment of the request that the thread sends; False when it ended without."""
    end = time.monotonic() + DEADLINE_S
    while thread.is_alive() and time.monotonic() < end:
        if MOMENTS[column](stack, seen):
            return True
        time.sleep(0.002)
    return False


def let_go(stack: Stack) -> int:
    """Sockets the proxy still has when the time is over; 0 as soon as it has none."""
    end = time.monotonic() + SOCKETS_S
    while stack.sockets and time.monotonic() < end:
        time.sleep(0.1)
    return stack.sockets


def settle(stack: Stack) -> dict[str, int]:
    """What is left on the doubles once everything had time to end; RuntimeError when one does not tell."""
    begun = time.monotonic()
    while True:
        states = [engine.state for engine in stack.engines.values()]
        rest = left(states) if all(states) else {}
        waited = time.monotonic() - begun
        if rest and (not any(rest.values()) or waited > SOCKETS_S):
            return rest
        if rest and waited > SETTLE_S and any(n for what, n in rest.items() if what != "sockets"):
            return rest
        if waited > 2 * SOCKETS_S:
            raise RuntimeError(f"an engine does not tell its state: {stack.last_words()}")
        time.sleep(0.1)


def left(states: list[dict[str, Any]]) -> dict[str, int]:
    """Sums over the doubles."""
    return {
        "pinned": sum(s["pinned_blocks"] for s in states),
        "leaked": sum(s["leaked_blocks"] for s in states),
        "running": sum(s["running"] + s["waiting"] + s["fetching"] + s["open"] for s in states),
        # the proxy's own probes come and go, so this is nought now and then when nothing else is open
        "sockets": sum(s["connections"] for s in states),
    }


def judge(found: Cell, row: Row) -> list[str]:
    """Why a cell is not good enough."""
    faults = [] if found.struck else ["the fault did not happen"]
    if found.outcome not in ("ok", *row.allowed.get(found.column, ())):
        faults.append(f"client saw {found.outcome}")
    kinds = (
        (found.pinned_blocks, "pinned blocks"),
        (found.leaked_blocks, "leaked blocks"),
        (found.running, "sequences"),
        (found.sockets_at_engines, "sockets at the engines"),
        (found.sockets_in_proxy, "sockets of the proxy"),
    )
    return faults + [f"{n} {what} left" for n, what in kinds if n]


@dataclass(frozen=True)
class Kind:
    """What a stack is made of."""

    dialect: Dialect = Dialect.NIXL
    cable: bool = False

    def takes(self, row: Row) -> bool:
        return row.cable is self.cable and self.dialect in row.dialects


@contextlib.contextmanager
def stack_up(kind: Kind = Kind(), number: int = 0) -> Iterator[Stack]:
    with tempfile.TemporaryDirectory(prefix=folder_of(own_block())) as folder:
        network = Network(number) if kind.cable else None
        stack = Stack(Path(folder), dialect=kind.dialect, network=network)
        try:
            stack.start()
            yield stack
        finally:
            stack.end()
