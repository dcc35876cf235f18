"""Traffic described by parameters instead of requests: ServeGen's files of one client, drawn into requests.

`NAME-trace.csv`: a window a line without a header: start in seconds, requests/s, coefficient of variation, family of
the gaps (Gamma, Weibull, or none where nothing came), its shape and scale. `NAME-dataset.json`: start in seconds ->
shares of input and output lengths. Pure: texts and a generator in, requests out.
"""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

_FAMILIES = {"", "gamma", "weibull"}
_COLUMNS = 6
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*:\s*(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)")


class WindowsError(ValueError):
    """The text is not such a file; the message says where and why."""

    def __init__(self, message: str, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Window:
    """Arrivals from `at_s` on until the next window. shape: of the gaps' family, whose mean is 1/rate."""

    at_s: float
    rate: float
    family: str
    shape: float

    def gap_s(self, rng: random.Random) -> float:
        """Time to the next request."""
        if self.family == "weibull":
            return rng.weibullvariate(1 / (self.rate * math.gamma(1 + 1 / self.shape)), self.shape)
        return rng.gammavariate(self.shape, 1 / (self.shape * self.rate))


@dataclass(frozen=True, slots=True)
class Shares:
    """A distribution of lengths: values and their running sums."""

    tokens: tuple[int, ...]
    sums: tuple[float, ...]

    def draw(self, rng: random.Random) -> int:
        """One length, at least 1."""
        at = bisect_right(self.sums, rng.random() * self.sums[-1])
        return max(1, self.tokens[min(at, len(self.tokens) - 1)])


@dataclass(frozen=True, slots=True)
class Period:
    """Lengths from `at_s` on."""

    at_s: float
    inputs: Shares
    outputs: Shares


def describes_windows(text: str) -> bool:
    """Whether a text is such a file of arrivals: six fields, a number first and a family fourth."""
    fields = text.lstrip("\ufeff").split("\n", 1)[0].strip().split(",")
    return len(fields) == _COLUMNS and _number(fields[0]) is not None and fields[3].lower() in _FAMILIES


def read_windows(text: str) -> tuple[Window, ...]:
    """Windows in the order of time; raises WindowsError."""
    found = []
    for line, row in enumerate(csv.reader(io.StringIO(text.lstrip("\ufeff"))), 1):
        if not row:
            continue
        values = [_number(field) for n, field in enumerate(row) if n != 3]
        family = row[3].strip().lower() if len(row) == _COLUMNS else "?"
        if len(row) != _COLUMNS or None in values or family not in _FAMILIES:
            raise WindowsError(
                f"line {line}: start, rate, variation, Gamma or Weibull, shape, scale are wanted", line
            )
        at_s, rate, _, shape, _ = (value or 0.0 for value in values)
        if rate > 0 and shape <= 0:
            raise WindowsError(f"line {line}: gaps of shape {shape:g}", line)
        found.append(Window(at_s, rate, family, shape))
    return tuple(sorted(found, key=lambda window: window.at_s))


def read_periods(text: str) -> tuple[Period, ...]:
    """Periods that have lengths, in the order of time; raises WindowsError."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        raise WindowsError("the lengths are not JSON") from None
    if not isinstance(raw, dict):
        raise WindowsError("the lengths are not a JSON object of periods")
    found = []
    for start, both in raw.items():
        at_s = _number(start)
        if at_s is None or not isinstance(both, dict):
            raise WindowsError(f"period `{start[:20]}` is not a time in seconds with lengths")
        inputs, outputs = (_shares(both.get(f"{kind}_tokens")) for kind in ("input", "output"))
        if inputs is not None and outputs is not None:
            found.append(Period(at_s, inputs, outputs))
    return tuple(sorted(found, key=lambda period: period.at_s))


def drawn(
    windows: Sequence[Window], periods: Sequence[Period], rng: random.Random
) -> Iterator[tuple[float, int, int]]:
    """(seconds, input tokens, output tokens) of each request; lengths of the last period begun that has any."""
    if not periods:
        return
    starts = [period.at_s for period in periods]
    for number, window in enumerate(windows):
        if window.rate <= 0:
            continue
        after = windows[number + 1].at_s if number + 1 < len(windows) else window.at_s + _last(windows)
        lengths = periods[max(0, bisect_right(starts, window.at_s) - 1)]
        now = window.at_s + window.gap_s(rng)
        while now < after:
            yield now, lengths.inputs.draw(rng), lengths.outputs.draw(rng)
            now += window.gap_s(rng)


def _last(windows: Sequence[Window]) -> float:
    """Length of the last window: that of the one before, a minute for a single one."""
    return windows[-1].at_s - windows[-2].at_s if len(windows) > 1 else 60.0


def _shares(listed: object) -> Shares | None:
    """`{34: 0.2, 35: 0.8}` as text; None where it holds nothing."""
    pairs = [(int(float(n)), float(share)) for n, share in _SHARE.findall(str(listed or ""))]
    kept = [(n, share) for n, share in pairs if share > 0]
    if not kept:
        return None
    return Shares(tuple(n for n, _ in kept), tuple(accumulate(share for _, share in kept)))


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
