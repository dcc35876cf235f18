"""Every fault at every moment of a request: `python -m tests.bench.fault_matrix [--rows WORD] [--column WORD] [--times N] [--json]`.

Two prefill and two decode doubles and the real proxy, each a process of its own, for every dialect. In each cell one
streamed request is sent, one thing goes wrong, and it is written down what the client saw, how often the proxy tried
again, and what is left behind: pinned or leaked blocks, running sequences, open sockets. A cell fails when a request is
lost that could have been tried again, when it hangs, when its text is wrong, or when something leaks.

Sockets are judged three times. Those of the proxy's workers while the fault still lasts: half-open ones must end by
deadline, within 30 s. Those at the engines once it is over. And all of them once more 30 s after the last cell of each
stack, when nothing has been asked for that long.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from disaggc.routing.table import Dialect
from tests.bench.fault_network import Network, unavailable
from tests.bench.fault_stack import DEADLINE_S, LEASE_S, Seen, Stack, expected_text

COLUMNS = ("before leg 1", "during leg 1", "between legs", "before first byte", "mid-stream")
SETTLE_S = LEASE_S + 4.0
SOCKETS_S = 30.0
"""After this long nothing may be open any more."""
ALL_DIALECTS = tuple(d for d in Dialect if d is not Dialect.NONE)
ONE_AFTER_THE_OTHER = (Dialect.NIXL, Dialect.MORIIO_READ)
"""Dialects whose decode is asked when prefill has answered; in the others nothing is between the legs."""

# --- what goes wrong ---

Moment = Callable[[Stack, Seen], bool]
MOMENTS: dict[str, Moment] = {
    "during leg 1": lambda s, _: bool(s.engines["p0"].state.get("running")),
    "between legs": lambda s, _: bool(s.engines["p0"].state.get("leases")),
    "before first byte": lambda s, seen: bool(s.engines["d0"].state.get("fetching")) and not seen.events,
    "mid-stream": lambda _, seen: seen.events >= 3,
}


@dataclass(frozen=True)
class Row:
    """One kind of fault. allowed: outcomes besides `ok` by column, with why."""

    name: str
    arm: Callable[[Stack, str], Callable[[Stack], None] | None]
    """Prepares it; what it gives is done when the moment comes."""
    allowed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    dialects: tuple[Dialect, ...] = (Dialect.NIXL,)
    cable: bool = False
    """Needs engines in network namespaces."""


ASKED = {
    "before leg 1": ("p0", {"leg": "prefill", "when": "arrival"}),
    "during leg 1": ("p0", {"leg": "prefill", "when": "working", "delay_s": 0.1}),
    "between legs": ("d0", {"leg": "decode", "when": "arrival"}),
    "before first byte": ("d0", {"leg": "decode", "when": "first"}),
    "mid-stream": ("d0", {"leg": "decode", "when": "mid", "after_tokens": 4}),
}
MID = {"mid-stream": ("error event",)}


def asked(name: str, kind: str, *, strikes: bool = False, **more: Any) -> Row:
    """A fault at the engine that has the request then: of the request, or of the process (`strikes`)."""

    def arm(stack: Stack, column: str) -> None:
        engine, when = ASKED[column]
        if strikes and column == "before first byte":
            when = {"leg": "decode", "when": "working", "delay_s": 0.1}  # the word is not made yet
        stack.engines[engine].fault(kind=kind, **{**when, **more})

    return Row(name, arm, allowed=MID)


def nothing(name: str) -> Row:
    """No fault: the dialect works at all."""
    return Row(name, lambda *_: None, skip=COLUMNS[1:])


def unplugged(name: str, engine: str) -> Row:
    """The cable of an engine's machine is pulled: packets vanish, and nobody is told."""

    def arm(stack: Stack, column: str) -> Callable[[Stack], None] | None:
        if column == "before leg 1":
            stack.engines[engine].cut()
            return None
        return lambda s: s.engines[engine].cut()

    return Row(name, arm, allowed=MID if engine == "d0" else {}, cable=True)


def everywhere(row: Row) -> Row:
    """The same in every dialect."""
    return replace(row, dialects=ALL_DIALECTS)


def struck(name: str, engine: str, kind: str, how: int) -> Row:
    """A process that is struck, whatever it does at that moment."""
    mine = {
        "p0": ("between legs", {"leg": "prefill", "when": "after"}),
        "d0": ("between legs", {"leg": "decode", "when": "arrival"}),
    }

    def arm(stack: Stack, column: str) -> Callable[[Stack], None] | None:
        exact, when = mine[engine]
        if column == exact:
            stack.engines[engine].fault(kind=kind, **when)
            return None
        if column == "before leg 1":
            stack.engines[engine].kill(how)
            return None
        return lambda s: s.engines[engine].kill(how)

    return Row(name, arm, allowed=MID if engine == "d0" else {})


def prefill_only(name: str, kind: str, columns: tuple[str, ...], **more: Any) -> Row:
    """A fault of the prefill side that has a meaning only at some moments."""

    def arm(stack: Stack, column: str) -> None:
        when = {"when": "after" if column == "between legs" else "working", "leg": "prefill"}
        stack.engines["p0"].fault(kind=kind, **{**when, **more})

    return Row(name, arm, skip=tuple(c for c in COLUMNS if c not in columns))


def of_proxy(name: str, act: Callable[[Stack], None], outcomes: tuple[str, ...]) -> Row:
    """A process of the proxy is struck: the client's connection lives in it."""

    def arm(_: Stack, column: str) -> Callable[[Stack], None] | None:
        return act if column != "before leg 1" else None

    return Row(name, arm, allowed=dict.fromkeys(COLUMNS, outcomes), skip=("before leg 1",))


def kill_workers(stack: Stack) -> None:
    for pid in stack.workers:
        os.kill(pid, signal.SIGKILL)


def proxy_signal(how: int) -> Callable[[Stack], None]:
    def act(stack: Stack) -> None:
        assert stack.proxy is not None
        stack.proxy.send_signal(how)

    return act


ROWS = (
    everywhere(nothing("no fault")),
    everywhere(asked("engine answers 500", "status")),
    asked("engine answers 503", "status", status=503),
    everywhere(asked("200 with an error", "error-200")),
    asked("200 with abort", "abort-200"),
    everywhere(asked("connection reset", "drop")),
    everywhere(asked("request hangs", "hang")),
    asked("half-open connection", "half-open"),
    asked("engine frozen", "freeze", strikes=True),
    asked("engine 60 x slower", "slow", factor=60, strikes=True),
    asked("connections refused", "refuse", strikes=True),
    asked("leases expire", "expire-leases", strikes=True),
    prefill_only("prefill without parameters", "null-params", ("during leg 1",)),
    prefill_only("leases expire after leg 1", "expire-leases", ("between legs",)),
    everywhere(struck("kill -9 prefill", "p0", "crash", signal.SIGKILL)),
    everywhere(struck("kill -9 decode", "d0", "crash", signal.SIGKILL)),
    struck("SIGTERM prefill", "p0", "terminate", signal.SIGTERM),
    struck("SIGTERM decode", "d0", "terminate", signal.SIGTERM),
    everywhere(struck("SIGSTOP prefill", "p0", "stop", signal.SIGSTOP)),
    everywhere(struck("SIGSTOP decode", "d0", "stop", signal.SIGSTOP)),
    unplugged("cable pulled at prefill", "p0"),
    unplugged("cable pulled at decode", "d0"),
    of_proxy("kill -9 proxy worker", kill_workers, ("connection lost", "CUT")),
    of_proxy("SIGTERM proxy", proxy_signal(signal.SIGTERM), ()),
    of_proxy("kill -9 proxy control", proxy_signal(signal.SIGKILL), ()),
)
"""A wrong block id in the parameters is not among them: the engine answers it with wrong text and a 200, which no
proxy can see; canary pairs and `smoke` look for that."""


@dataclass
class Cell:
    """What came of one fault at one moment."""

    row: str
    dialect: str
    column: str
    outcome: str
    seconds: float
    retries: int
    pinned: int
    leaked: int
    running: int
    sockets: int
    held: int
    """Sockets the proxy had 30 s after the request, with the fault still there."""
    faults: list[str] = field(default_factory=list)

    def text(self) -> str:
        left = [
            f"{n} {what}"
            for n, what in (
                (self.pinned, "pinned"),
                (self.leaked, "leaked"),
                (self.running, "running"),
                (self.sockets, "sockets"),
                (self.held, "held"),
            )
            if n
        ]
        return " ".join([self.outcome, *([f"r{self.retries}"] if self.retries else []), *left])


def cell(stack: Stack, row: Row, column: str) -> Cell:
    """One request, one fault, and what is left after the leases are over."""
    prompt = f"{row.name} {column} {time.monotonic_ns()} " * 8
    expected, seen = expected_text(prompt), Seen()
    before = stack.metric("retries_total")
    act = row.arm(stack, column)
    thread = threading.Thread(target=stack.send, args=(prompt, seen))
    thread.start()
    if act is not None:
        end = time.monotonic() + DEADLINE_S
        while thread.is_alive() and time.monotonic() < end and not MOMENTS[column](stack, seen):
            time.sleep(0.002)
        act(stack)
    thread.join(DEADLINE_S + 3)
    held = let_go(stack)
    retries = int(stack.metric("retries_total") - before)
    for engine in stack.engines.values():
        engine.well()
    rest = settle(stack)
    found = Cell(
        row.name, stack.dialect.value, column, seen.outcome(expected), round(seen.seconds, 2), max(retries, 0),
        held=held, **rest,
    )  # fmt: skip
    found.faults = judge(found, row)
    return found


def let_go(stack: Stack) -> int:
    """Sockets the proxy still has when the time is over; 0 as soon as it has none."""
    end = time.monotonic() + SOCKETS_S
    while stack.sockets and time.monotonic() < end:
        time.sleep(0.1)
    return stack.sockets


def settle(stack: Stack) -> dict[str, int]:
    """What is left on the doubles once everything had time to end."""
    end = time.monotonic() + SETTLE_S
    while True:
        states = [engine.state for engine in stack.engines.values()]
        rest = {
            "pinned": sum(s.get("pinned_blocks", 0) for s in states),
            "leaked": sum(s.get("leaked_blocks", 0) for s in states),
            "running": sum(
                s.get("running", 0) + s.get("waiting", 0) + s.get("fetching", 0) + s.get("open", 0)
                for s in states
            ),
            # the proxy's own probes come and go, so this is nought now and then when nothing else is open
            "sockets": sum(s.get("connections", 0) for s in states),
        }
        if not any(rest.values()) or time.monotonic() > end:
            return rest
        time.sleep(0.1)


def judge(found: Cell, row: Row) -> list[str]:
    """Why a cell is not good enough."""
    faults = []
    if found.outcome not in ("ok", *row.allowed.get(found.column, ())):
        faults.append(f"client saw {found.outcome}")
    faults += [
        f"{n} {what} left"
        for n, what in (
            (found.pinned, "pinned blocks"),
            (found.leaked, "leaked blocks"),
            (found.running, "sequences"),
            (found.sockets, "sockets"),
            (found.held, "sockets of the proxy"),
        )
        if n
    ]
    return faults


@dataclass(frozen=True)
class Kind:
    """What a stack is made of."""

    dialect: Dialect = Dialect.NIXL
    cable: bool = False

    def takes(self, row: Row) -> bool:
        return row.cable is self.cable and self.dialect in row.dialects

    def columns(self, row: Row) -> list[str]:
        """Moments of a request that this dialect has and the row means."""
        absent = () if self.dialect in ONE_AFTER_THE_OTHER else ("between legs",)
        return [column for column in COLUMNS if column not in (*row.skip, *absent)]


@contextlib.contextmanager
def stack_up(kind: Kind = Kind(), number: int = 0) -> Iterator[Stack]:
    with tempfile.TemporaryDirectory() as folder:
        network = Network(number) if kind.cable else None
        stack = Stack(Path(folder), dialect=kind.dialect, network=network)
        try:
            stack.start()
            yield stack
        finally:
            stack.end()


@dataclass
class Work:
    """The rows still to do, by kind of stack; workers take one after the other."""

    todo: dict[Kind, list[Row]]
    quiet: bool
    column: str = ""
    """Only moments with this word."""
    cells: list[Cell] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What was open 30 s after a stack's last cell."""
    stacks: int = 0
    at_work: Counter[Kind] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """One stack after the other, of the kind that has most to do."""
        while True:
            with self.lock:
                kind = max(self.todo, key=lambda k: len(self.todo[k]) / (1 + self.at_work[k]))
                row = self.todo[kind].pop(0) if self.todo[kind] else None
                if row is None:
                    return
                self.stacks += 1
                self.at_work[kind] += 1
                number = self.stacks
            with stack_up(kind, number) as stack:
                while row is not None:
                    self.line(stack, kind, row)
                    row = self.take(kind)
                self.rest(stack, kind)

    def take(self, kind: Kind) -> Row | None:
        with self.lock:
            return self.todo[kind].pop(0) if self.todo[kind] else None

    def line(self, stack: Stack, kind: Kind, row: Row) -> None:
        """All cells of a row."""
        found = []
        for column in [c for c in kind.columns(row) if self.column in c]:
            found.append(cell(stack, row, column))
            stack.well()
        with self.lock:
            self.cells += found
            if not self.quiet:
                print(rendered(row, kind, found), flush=True)

    def rest(self, stack: Stack, kind: Kind) -> None:
        """Nothing may be open when nothing was asked for long."""
        time.sleep(SOCKETS_S)
        least = [stack.sockets]
        for engine in stack.engines.values():
            # the proxy's own probes come and go at the engines, and a busy machine may not answer at once
            told = [engine.state.get("connections") for _ in range(20)]
            least.append(min((n for n in told if n is not None), default=-1))
        if any(least):
            with self.lock:
                self.left.append(
                    f"{kind.dialect}: {least[0]} sockets in the proxy, {least[1:]} at the engines"
                )


def rendered(row: Row, kind: Kind, found: list[Cell]) -> str:
    """One line of the table."""
    texts = {c.column: c.text() + (" **FAIL**" if c.faults else "") for c in found}
    return (
        f"| {row.name} | {kind.dialect} | " + " | ".join(texts.get(column, "-") for column in COLUMNS) + " |"
    )


def planned(rows: list[Row]) -> tuple[dict[Kind, list[Row]], str | None]:
    """Rows by kind of stack, and why cables cannot be pulled here."""
    missing = unavailable()
    kinds = [Kind(d) for d in ALL_DIALECTS] + ([] if missing else [Kind(cable=True)])
    return {kind: [row for row in rows if kind.takes(row)] for kind in kinds}, missing


def main() -> int:
    """Run and print; 1 when a cell fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="", help="only rows with this word")
    parser.add_argument("--dialect", default="", help="only this dialect")
    parser.add_argument("--column", default="", help="only moments with this word")
    parser.add_argument("--times", type=int, default=1, help="how often each row is done")
    parser.add_argument("--stacks", type=int, default=4, help="stacks that run rows side by side")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    todo, missing = planned([row for row in ROWS if options.rows in row.name])
    todo = {
        kind: [row for row in rows if any(options.column in c for c in kind.columns(row))] * options.times
        for kind, rows in todo.items()
        if options.dialect in ("", kind.dialect.value)
    }
    skipped = [row.name for row in ROWS if row.cable and options.rows in row.name] if missing else []
    if skipped:
        print(f"SKIPPED, {missing}: {', '.join(skipped)}", file=sys.stderr)
    if not options.json:
        print("| fault | dialect | " + " | ".join(COLUMNS) + " |\n|---|---" + "|---" * len(COLUMNS) + "|")
    work, begun = Work(todo, quiet=options.json, column=options.column), time.monotonic()
    with ThreadPoolExecutor(options.stacks) as pool:
        for task in [pool.submit(work.run) for _ in range(options.stacks)]:
            task.result()
    return report(work, skipped, minutes=(time.monotonic() - begun) / 60, as_json=options.json)


def report(work: Work, skipped: list[str], *, minutes: float, as_json: bool) -> int:
    """What came of it; 1 when a cell fails or something stayed open."""
    bad = [c for c in work.cells if c.faults]
    if as_json:
        told = {"cells": [vars(c) for c in work.cells], "open_after_30_s": work.left, "skipped": skipped}
        print(json.dumps({"schema": "disaggc.bench-faults/v2", **told}, indent=2))
    else:
        slowest = max((c.seconds for c in work.cells), default=0.0)
        print(
            f"\n{len(work.cells)} cells, {len(bad)} fail; slowest {slowest} s, deadline {DEADLINE_S} s; {minutes:.1f} min"
        )
        print(f"open 30 s after the last cells of {work.stacks} stacks: {'; '.join(work.left) or 'nothing'}")
        for c in bad:
            print(f"  {c.row}, {c.dialect}, {c.column}: {'; '.join(c.faults)}")
    return 1 if bad or work.left or not work.cells else 0


if __name__ == "__main__":
    sys.exit(main())
