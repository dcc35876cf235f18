"""The real proxy and four doubles for a while, under a steady load and faults that come and go.

Every client must get a whole answer, an error by the rules, or an error event, within its deadline and never a wrong
word; when the load ends nothing may be left: no request, no block, no socket, and no memory that grew with time.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

from tests.bench.fault_cell import settle, stack_up
from tests.bench.fault_left import clear_left
from tests.bench.fault_stack import Seen, Stack, expected_text
from tests.soak.part import Part

MINUTES = 15.0
CLIENTS = 8
KINDS = (
    {"kind": "status"}, {"kind": "drop", "when": "mid", "after_tokens": 3}, {"kind": "hang"}, {"kind": "error-200"},
    {"kind": "half-open"}, {"kind": "null-params"}, {"kind": "expire-leases"}, {"kind": "crash"}, {"kind": "terminate"},
)  # fmt: skip
BY_THE_RULES = {"ok", "error event", "502", "503", "504", "429"}
GROWTH = 1.3
"""Resident memory at the end over that after the first fifth: above it something is kept."""


def _memory(stack: Stack) -> int:
    """Resident bytes of the proxy's workers."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in stack.workers]
    return sum(pages) * 4096


def _client(stack: Stack, number: int, end: float, outcomes: Counter[str]) -> None:
    """Asks until the time is over."""
    turn = 0
    while time.monotonic() < end:
        turn += 1
        prompt = f"client {number} turn {turn} " * (1 + turn % 40)
        seen = stack.send(prompt, Seen(), first=number % 2)
        outcomes[seen.outcome(expected_text(prompt))] += 1


def _strike(stack: Stack, end: float, struck: Counter[str]) -> None:
    """One fault after another, a few seconds apart."""
    rng = random.Random(7)
    while time.monotonic() < end - 10:
        engine, what = rng.choice(sorted(stack.engines)), rng.choice(KINDS)
        stack.engines[engine].fault(**what)
        struck[str(what["kind"])] += 1
        time.sleep(rng.uniform(0.5, 4.0))
        stack.engines[engine].well()
        time.sleep(rng.uniform(0.0, 2.0))


def run() -> Part:
    """Load and faults over the whole time, then what is left."""
    outcomes: Counter[str] = Counter()
    struck: Counter[str] = Counter()
    clear_left()
    with stack_up() as stack:
        begun = time.monotonic()
        end = begun + MINUTES * 60
        threads = [threading.Thread(target=_client, args=(stack, n, end, outcomes)) for n in range(CLIENTS)]
        threads.append(threading.Thread(target=_strike, args=(stack, end, struck)))
        for thread in threads:
            thread.start()
        time.sleep(MINUTES * 60 / 5)
        early = _memory(stack)
        for thread in threads:
            thread.join()
        late = _memory(stack)
        for engine in stack.engines.values():
            engine.well()
        rest = settle(stack)
    bad = {what: n for what, n in outcomes.items() if what not in BY_THE_RULES}
    faults = [f"{n} clients saw {what}" for what, n in sorted(bad.items())]
    faults += [f"{n} {what} left" for what, n in rest.items() if n]
    if late > GROWTH * early:
        faults.append(f"memory grew from {early / 1e6:.0f} to {late / 1e6:.0f} MB")
    said = ", ".join(f"{n:,} {what}" for what, n in outcomes.most_common())
    tried = f"{sum(outcomes.values()):,} requests under {sum(struck.values())} faults: {said}; {early / 1e6:.0f} -> {late / 1e6:.0f} MB"
    return Part(f"proxy and doubles for {MINUTES:g} min, faults coming and going", tried, tuple(faults))
