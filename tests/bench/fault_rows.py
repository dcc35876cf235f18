"""What goes wrong in the fault matrix, and at which moments of a request: the rows and the columns. Knows no outcomes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from disaggc.routing.table import Dialect
from tests.bench.fault_stack import PREFILL_S, Seen, Stack

COLUMNS = ("before leg 1", "during leg 1", "between legs", "before first byte", "mid-stream")
ALL_DIALECTS = tuple(d for d in Dialect if d is not Dialect.NONE)
ONE_AFTER_THE_OTHER = (Dialect.NIXL, Dialect.MORIIO_READ)
"""Dialects whose decode is asked when prefill has answered; in the others nothing is between the legs."""
LEASED = ("between legs", "before first byte", "mid-stream")
"""Moments at which prefill may still keep the KV of this request."""

Moment = Callable[[Stack, Seen], bool]
MOMENTS: dict[str, Moment] = {
    "during leg 1": lambda s, _: bool(s.engines["p0"].state.get("running")),
    "between legs": lambda s, _: bool(s.engines["p0"].state.get("leases")),
    "before first byte": lambda s, seen: (
        bool(s.engines["d0"].state.get("fetching"))
        and not s.engines["p0"].state.get("running")
        and not seen.events
    ),
    "mid-stream": lambda _, seen: seen.events >= 3,
}
"""Where the legs run at once decode waits from the start, so it is fetching only when prefill does not compute."""

Act = Callable[[Stack], None]


@dataclass(frozen=True)
class Row:
    """One kind of fault."""

    name: str
    arm: Callable[[Stack, str], Act | None]
    """Prepares it; what it gives is done when the moment comes."""
    allowed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Outcomes besides `ok`, by column."""
    columns: tuple[str, ...] = COLUMNS
    """Moments at which it means something."""
    dialects: tuple[Dialect, ...] = ALL_DIALECTS
    why_not: str = ""
    """What the other dialects lack."""
    cable: bool = False
    """Needs engines in network namespaces."""

    def moments(self, dialect: Dialect) -> list[str]:
        """Those that the dialect has."""
        absent = () if dialect in ONE_AFTER_THE_OTHER else ("between legs",)
        return [column for column in self.columns if column not in absent]


ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "before leg 1": ("p0", {"leg": "prefill", "when": "arrival"}),
    "during leg 1": ("p0", {"leg": "prefill", "when": "working", "delay_s": PREFILL_S / 3}),
    "between legs": ("d0", {"leg": "decode", "when": "arrival"}),
    "before first byte": ("d0", {"leg": "decode", "when": "first"}),
    "mid-stream": ("d0", {"leg": "decode", "when": "mid", "after_tokens": 4}),
}
MID: dict[str, tuple[str, ...]] = {"mid-stream": ("error event",)}


def asked(name: str, kind: str, *, strikes: bool = False, **more: Any) -> Row:
    """A fault at the engine that has the request then: of the request, or of the process (`strikes`)."""

    def arm(stack: Stack, column: str) -> None:
        engine, when = ASKED[column]
        if strikes and column == "before first byte":  # while KV moves: the word is not made yet
            waits = 0.0 if stack.dialect in ONE_AFTER_THE_OTHER else PREFILL_S
            when = {"leg": "decode", "when": "working", "delay_s": waits + 0.1}
        stack.engines[engine].fault(kind=kind, **{**when, **more})

    return Row(name, arm, allowed=MID)


def at_moment(name: str, act: Act, *, engine: str, cable: bool = False) -> Row:
    """Done from outside when the moment comes. engine: whose loss it is."""

    def arm(stack: Stack, column: str) -> Act | None:
        if column == "before leg 1":
            act(stack)
            return None
        return act

    return Row(name, arm, allowed=MID if engine == "d0" else {}, cable=cable)


def struck(name: str, engine: str, kind: str, how: int) -> Row:
    """A process that is struck, whatever it does at that moment."""
    at = {
        "p0": {"leg": "prefill", "when": "after"},
        "d0": {"leg": "decode", "when": "arrival"},
    }[engine]
    row = at_moment(name, lambda s: s.engines[engine].kill(how), engine=engine)

    def arm(stack: Stack, column: str) -> Act | None:
        if column == "between legs":  # too short to be seen from outside
            stack.engines[engine].fault(kind=kind, **at)
            return None
        return row.arm(stack, column)

    return replace(row, arm=arm)


def of_parameters(name: str, kind: str, outcomes: tuple[str, ...] = ()) -> Row:
    """Wrong parameters in prefill's answer."""

    def arm(stack: Stack, _: str) -> None:
        stack.engines["p0"].fault(kind=kind, leg="prefill", when="working")

    return Row(
        name, arm, allowed=dict.fromkeys(COLUMNS, outcomes), columns=("during leg 1",), dialects=ONE_AFTER_THE_OTHER,
        why_not="decode's parameters come from the routing file, not from prefill's answer",
    )  # fmt: skip


def leases_end(name: str, kind: str, outcomes: tuple[str, ...] = ()) -> Row:
    """Every lease of prefill ends, and perhaps its blocks are written to. outcomes: until decode has the KV."""

    def arm(stack: Stack, column: str) -> Act | None:
        if column == "between legs":
            stack.engines["p0"].fault(kind=kind, leg="prefill", when="after")
            return None
        return lambda s: s.engines["p0"].now(kind=kind)

    return Row(
        name, arm, allowed=dict.fromkeys(LEASED[:2], outcomes), columns=LEASED, dialects=ONE_AFTER_THE_OTHER,
        why_not="decode waits already when prefill ends, so no lease is between them",
    )  # fmt: skip


def of_proxy(name: str, act: Act, outcomes: tuple[str, ...], *, before: bool) -> Row:
    """A process of the proxy is struck: the client's connection lives in it. before: one can still ask afterwards."""
    row = at_moment(name, act, engine="proxy")
    return replace(
        row,
        allowed=dict.fromkeys(COLUMNS[1:], outcomes),
        columns=COLUMNS if before else COLUMNS[1:],
    )


def workers(how: int) -> Act:
    def act(stack: Stack) -> None:
        for pid in stack.workers:
            os.kill(pid, how)

    return act


def control(how: int) -> Act:
    def act(stack: Stack) -> None:
        assert stack.proxy is not None
        stack.proxy.send_signal(how)

    return act


ROWS = (
    Row("no fault", lambda *_: None, columns=COLUMNS[:1]),
    asked("engine answers 500", "status"),
    asked("engine answers 503", "status", status=503),
    asked("200 with an error", "error-200"),
    asked("200 with abort", "abort-200"),
    asked("connection reset", "drop"),
    asked("request hangs", "hang"),
    asked("half-open connection", "half-open"),
    asked("engine frozen", "freeze", strikes=True),
    asked("engine 60 x slower", "slow", factor=60, strikes=True),
    asked("connections refused", "refuse", strikes=True),
    leases_end("leases expire", "expire-leases"),
    leases_end("leases expire, blocks are reused", "reuse-leases", ("WRONG TEXT",)),
    of_parameters("prefill without parameters", "null-params"),
    of_parameters("prefill names other blocks", "other-blocks", ("WRONG TEXT",)),
    struck("kill -9 prefill", "p0", "crash", signal.SIGKILL),
    struck("kill -9 decode", "d0", "crash", signal.SIGKILL),
    struck("SIGTERM prefill", "p0", "terminate", signal.SIGTERM),
    struck("SIGTERM decode", "d0", "terminate", signal.SIGTERM),
    struck("SIGSTOP prefill", "p0", "stop", signal.SIGSTOP),
    struck("SIGSTOP decode", "d0", "stop", signal.SIGSTOP),
    at_moment("cable pulled at prefill", lambda s: s.engines["p0"].cut(), engine="p0", cable=True),
    at_moment("cable pulled at decode", lambda s: s.engines["d0"].cut(), engine="d0", cable=True),
    at_moment("KV link cut", lambda s: s.part("p0", "d0"), engine="link", cable=True),
    of_proxy("kill -9 proxy worker", workers(signal.SIGKILL), ("connection lost", "CUT"), before=True),
    of_proxy("SIGTERM proxy worker", workers(signal.SIGTERM), (), before=True),
    of_proxy("kill -9 proxy control", control(signal.SIGKILL), (), before=False),
    of_proxy("SIGTERM proxy control", control(signal.SIGTERM), (), before=False),
)
