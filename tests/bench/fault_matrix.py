"""Every fault at every moment of a request: `python -m tests.bench.fault_matrix [--rows WORD] [--column WORD] [--times N] [--json]`.

Two prefill and two decode doubles and the real proxy, each a process of its own, for every dialect. In each cell one
streamed request is sent, one thing goes wrong, and it is written down what the client saw, how often the proxy tried
again, and what is left behind: pinned or leaked blocks, running sequences, open sockets. A cell fails when a request is
lost that could have been tried again, when it hangs, when its text is wrong, or when something leaks.

Sockets are judged three times. Those of the proxy's workers while the fault still lasts: half-open ones must end by
deadline, within 30 s. Those at the engines once it is over. And all of them once more 30 s after the last cell of each
stack, when nothing has been asked for that long.

Rows are said on stderr as they are done, tables on stdout at the end; --write keeps docs/benchmarks/fault-matrix.md.
SIGTERM and Ctrl-C end all of it at once; what a killed run left is removed when the next one begins (fault_left).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from tests import compiled
from tests.bench.fault_cell import SOCKETS_S, Cell, Kind, cell, stack_up
from tests.bench.fault_left import clear_left, end_by_signals
from tests.bench.fault_network import unavailable
from tests.bench.fault_page import PAGE, Result, commit, line
from tests.bench.fault_rows import ALL_DIALECTS, ROWS, Row
from tests.bench.fault_stack import DEADLINE_S, Stack

Rows = dict[Kind, list[Row]]
PATIENCE = 3
"""Stacks of one kind that may break."""


@dataclass
class Work:
    """The rows still to do, by kind of stack; workers take one after the other."""

    todo: Rows
    column: str = ""
    """Only moments with this word."""
    result: Result = field(default_factory=Result)
    done: int = 0
    at_work: Counter[Kind] = field(default_factory=Counter)
    broke: Counter[Kind] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.all = sum(map(len, self.todo.values()))
        self.begun = time.monotonic()

    def run(self) -> None:
        """One stack after the other, of the kind that has most to do."""
        while any(self.todo.values()):
            with self.lock:
                kind = max(self.todo, key=lambda k: len(self.todo[k]) / (1 + self.at_work[k]))
                self.result.stacks += 1
                self.at_work[kind] += 1
                number = self.result.stacks
            try:
                with stack_up(kind, number) as stack:
                    compiled.check(stack.proxy.pid, is_compiled=self.result.is_compiled)
                    while (row := self.take(kind)) is not None:
                        self.line(stack, kind, row)
                    self.rest(stack, kind)
            except (RuntimeError, OSError) as exc:
                self.say(f"a stack for {kind.dialect} broke: {exc}", broken=True)
                self.broke[kind] += 1
                if self.broke[kind] >= PATIENCE:
                    self.give_up(kind)
            finally:
                self.at_work[kind] -= 1

    def give_up(self, kind: Kind) -> None:
        """Nothing more is tried with a kind of stack that breaks again and again."""
        with self.lock:
            rest, self.todo[kind] = self.todo[kind], []
        for row in rest:
            self.say(f"{row.name}, {kind.dialect}: given up", broken=True)

    def take(self, kind: Kind) -> Row | None:
        with self.lock:
            return self.todo[kind].pop(0) if self.todo[kind] else None

    def line(self, stack: Stack, kind: Kind, row: Row) -> None:
        """All cells of a row."""
        found: list[Cell] = []
        for column in [c for c in row.moments(kind.dialect) if self.column in c]:
            try:
                found.append(cell(stack, row, column))
                stack.well()
            except (RuntimeError, OSError) as exc:
                with self.lock:  # another stack does all of it again
                    self.todo[kind].append(row)
                raise RuntimeError(f"{row.name}, {column}: {exc}") from None
        self.result.cells += found
        self.done += 1
        self.say(f"{self.done}/{self.all} {kind.dialect} {line(row, kind.dialect, found)}")

    def say(self, text: str, *, broken: bool = False) -> None:
        minutes = (time.monotonic() - self.begun) / 60
        with self.lock:
            if broken:
                self.result.broken.append(text)
            print(f"{minutes:5.1f} min {text}", file=sys.stderr, flush=True)

    def rest(self, stack: Stack, kind: Kind) -> None:
        """Nothing may be open when nothing was asked for long."""
        time.sleep(SOCKETS_S)
        least = [stack.sockets]
        for engine in stack.engines.values():
            # the proxy's own probes come and go at the engines, and a busy machine may not answer at once
            told = [engine.state.get("connections") for _ in range(20)]
            least.append(min((n for n in told if n is not None), default=-1))
        if any(least):
            self.result.left.append(
                f"{kind.dialect}: {least[0]} sockets in the proxy, {least[1:]} at the engines"
            )


def planned(rows: list[Row]) -> tuple[Rows, str | None]:
    """Rows by kind of stack, and why cables cannot be pulled here."""
    missing = unavailable()
    kinds = [Kind(dialect, cable=cable) for dialect in ALL_DIALECTS for cable in (False, not missing)]
    return {kind: [row for row in rows if kind.takes(row)] for kind in kinds}, missing


def main() -> int:
    """Run and print; 1 when a cell fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows with this word")
    parser.add_argument("--dialect", default="", help="only this dialect")
    parser.add_argument("--column", default="", help="only moments with this word")
    parser.add_argument("--times", type=int, default=1, help="how often each row is done")
    parser.add_argument("--stacks", type=int, default=4, help="stacks that run rows side by side")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the page")
    parser.add_argument(
        "--interpreted", action="store_true", help="this checkout instead of the compiled package"
    )
    options = parser.parse_args()
    is_compiled = compiled.use(interpreted=options.interpreted)
    end_by_signals()
    for left in clear_left():
        print(f"a run that was killed left {left}: removed", file=sys.stderr)
    todo, missing = planned([row for row in ROWS if options.rows in row.name])
    todo = {
        kind: [row for row in rows if any(options.column in c for c in row.moments(kind.dialect))]
        * options.times
        for kind, rows in todo.items()
        if options.dialect in ("", kind.dialect.value)
    }
    skipped = [row.name for row in ROWS if row.cable and options.rows in row.name] if missing else []
    if skipped:
        print(f"SKIPPED, {missing}: {', '.join(skipped)}", file=sys.stderr)
    result = Result(side_by_side=options.stacks, skipped=skipped, commit=commit(), is_compiled=is_compiled)
    work, load = Work(todo, column=options.column, result=result), os.getloadavg()[0]
    with ThreadPoolExecutor(options.stacks) as pool:
        tasks = [pool.submit(work.run) for _ in range(options.stacks)]
        while wait(tasks, timeout=0.2).not_done:
            pass  # a signal that a thread took is acted on by this one, once it does something
        for task in tasks:
            task.result()
    result.minutes, result.load = (time.monotonic() - work.begun) / 60, (load, os.getloadavg()[0])
    if options.write:
        PAGE.write_text(result.page())
    print(told(result) if options.json else f"{result.tables()}\n\n{result.summary()}")
    return 0 if result.good else 1


def told(result: Result) -> str:
    """The run in JSON."""
    return json.dumps(
        {
            "schema": "disaggc.bench-faults/v3",
            "commit": result.commit,
            "compiled": result.is_compiled,
            "deadline_s": DEADLINE_S,
            "sockets_after_s": SOCKETS_S,
            "minutes": round(result.minutes, 1),
            "stacks": result.stacks,
            "stacks_side_by_side": result.side_by_side,
            "load_average": result.load,
            "cells": [vars(c) for c in result.cells],
            "absent": [
                {"row": row.name, "dialect": dialect.value, "why": row.why_not}
                for row in ROWS
                for dialect in ALL_DIALECTS
                if dialect not in row.dialects
            ],
            "open_after_30_s": result.left,
            "not_done": result.broken,
            "skipped": result.skipped,
        },
        indent=2,
    )


if __name__ == "__main__":
    sys.exit(main())
