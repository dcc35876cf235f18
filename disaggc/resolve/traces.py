"""Recorded traffic beside the spec: CSV with a header or a JSON object a line -> lengths and times, or requests.

Columns are found by the names that public traces use. Only shares and lengths are taken; no text of a request is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from disaggc.resolve.trace_rows import TraceError, trace_rows
from disaggc.traffic.client_windows import describes_windows

TRACE_LIMIT = 64 * 2**20
"""Largest trace that is read, in bytes."""

_COLUMNS = {
    "input": (
        "contexttokens",
        "inputtokens",
        "inputlength",
        "prompttokens",
        "promptlen",
        "promptlength",
        "requesttokens",
    ),
    "output": (
        "generatedtokens",
        "outputtokens",
        "outputlength",
        "completiontokens",
        "outputlen",
        "responselength",
        "responsetokens",
    ),
    "time": ("timestamp", "arrivaltime", "arriveds", "arrivedat", "arrival", "time", "ts"),
}
_CLASS = ("workload", "class")
_LATEST_S = 1e11
"""After the year 5000 as a Unix time, 3,000 years as a time of its own."""
_MILLISECONDS = "hash_ids"
"""Traces with this key (Mooncake's) count time in milliseconds, all others in seconds."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What was recorded. inputs, outputs: tokens; times: in any unit; empty where there is no such column."""

    inputs: tuple[float, ...]
    outputs: tuple[float, ...]
    times: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request of a trace: seconds, tokens (at least 1), its class and the ids of its prompt's blocks where told."""

    at_s: float
    inputs: int
    outputs: int
    workload: str = ""
    blocks: tuple[int, ...] = ()


def read_trace(text: str) -> Trace:
    """The columns of a trace; raises TraceError."""
    columns: dict[str, list[float]] = {"input": [], "output": [], "time": []}
    names: dict[str, str | None] | None = None
    for line, row in trace_rows(text):
        if names is None:
            names = {kind: _column(row, known) for kind, known in _COLUMNS.items()}
            if names["input"] is None and names["output"] is None and names["time"] is None:
                if describes_windows(text):
                    raise TraceError(
                        "these are ServeGen's parameters of a client, not requests; `disaggc simulate --trace` draws "
                        "requests from them, here give `rate` and `arrivals: {cv: ...}`"
                    )
                listed = ", ".join(f"`{name[:30]}`" for name in list(row)[:8])
                raise TraceError(f"no column of tokens or times among {listed}")
        for kind, name in names.items():
            if name is not None:
                value = _number(row.get(name), line, name) if kind != "time" else _time(row.get(name), line)
                if kind == "time" or value > 0:
                    columns[kind].append(value)
    if names is None:
        raise TraceError("the trace has a header and no requests")
    return Trace(tuple(columns["input"]), tuple(columns["output"]), tuple(columns["time"]))


def read_requests(text: str) -> tuple[Recorded, ...]:
    """Every request of a trace, in the order of its lines; raises TraceError."""
    found: list[Recorded] = []
    names: dict[str, str] = {}
    workload: str | None = None
    scale = 1.0
    for line, row in trace_rows(text):
        if not names:
            names = _every_column(row)
            workload = _column(row, _CLASS)
            scale = 1e-3 if _MILLISECONDS in row else 1.0
        tokens = [_number(row.get(names[kind]), line, names[kind]) for kind in ("input", "output")]
        if min(tokens) < 0:
            raise TraceError(f"line {line}: {min(tokens):g} tokens", line)
        inputs, outputs = (max(1, round(n)) for n in tokens)
        of_class = str(row.get(workload) or "")[:64] if workload else ""
        if not of_class.isprintable():
            raise TraceError(f"line {line}: the class name holds characters that cannot be shown", line)
        at_s = _time(row.get(names["time"]), line) * scale
        if abs(at_s) > _LATEST_S:
            text = f"line {line}: `{str(row.get(names['time']))[:40]}` seconds are no time: milliseconds, microseconds?"
            raise TraceError(text, line)
        found.append(Recorded(at_s, inputs, outputs, of_class, _blocks(row.get(_MILLISECONDS), line)))
    if not found:
        raise TraceError("the trace has a header and no requests")
    return tuple(found)


def _blocks(listed: object, line: int) -> tuple[int, ...]:
    """Block ids; none where there are none."""
    if listed is None:
        return ()
    if not isinstance(listed, list) or not all(type(i) is int and abs(i) < 1 << 62 for i in listed):
        raise TraceError(f"line {line}: `{_MILLISECONDS}` is no list of whole numbers", line)
    return tuple(listed)


def _every_column(row: Mapping[str, object]) -> dict[str, str]:
    """Column of input tokens, output tokens and time; a trace of requests needs all three."""
    names: dict[str, str] = {}
    for kind, known in _COLUMNS.items():
        name = _column(row, known)
        if name is None:
            wanted = {"input": "input tokens", "output": "output tokens", "time": "arrival times"}[kind]
            listed = ", ".join(f"`{name[:30]}`" for name in list(row)[:8])
            raise TraceError(f"no column of {wanted} among {listed}")
        names[kind] = name
    return names


def arrival_cv(times: tuple[float, ...]) -> float | None:
    """Coefficient of variation of the time between arrivals; None below three arrivals or where all are at once."""
    ordered = sorted(times)
    gaps = [later - earlier for earlier, later in pairwise(ordered)]
    if len(gaps) < 2:
        return None
    mean = math.fsum(gaps) / len(gaps)
    if mean <= 0:
        return None
    return math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / mean


def _column(row: Mapping[str, object], known: tuple[str, ...]) -> str | None:
    folded = {re.sub(r"[^a-z]", "", name.lower()): name for name in row}
    return next((folded[name] for name in known if name in folded), None)


def _number(value: object, line: int, name: str) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number > 1e9:
        what = "absent" if value is None else f"`{str(value)[:30]}`"
        raise TraceError(f"line {line}: `{name[:30]}` is {what}, a number of tokens is wanted", line)
    return number


def _time(value: object, line: int) -> float:
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e18
        and math.isfinite(value)
    ):
        return float(value)
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            number = _clock(value)
        if math.isfinite(number):
            return number
    raise TraceError(f"line {line}: `{str(value)[:40]}` is not a time", line)


def _clock(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return math.nan
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)  # only differences count
    return moment.timestamp()
