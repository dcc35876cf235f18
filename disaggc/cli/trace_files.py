"""The file `simulate --trace` names: recorded requests, or a client's parameters from which requests are drawn."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from disaggc.diagnostics import Diagnostic, Outcome, SourceSpan, error
from disaggc.resolve.trace_rows import TraceError
from disaggc.resolve.traces import TRACE_LIMIT, Recorded, read_requests
from disaggc.spec.files import Unreadable, decode, read_file
from disaggc.traffic.client_windows import (
    WindowsError,
    describes_windows,
    drawn,
    read_periods,
    read_windows,
)
from disaggc.units import counted

_ARRIVALS, _LENGTHS = "trace.csv", "dataset.json"
_DRAWN = 20_000
"""Requests drawn where no number is asked for."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The requests of a trace file. more: they were drawn from a client's parameters, and it sends more than these."""

    requests: tuple[Recorded, ...]
    more: bool = False

    def left_out(self, kept: int) -> str | None:
        """What is said of a run of the first `kept` of them; None where they are all there are."""
        if self.more:
            drawn_of = "of a ServeGen client that sends more: `--requests` draws another number"
            return f"the first {kept:,} requests {drawn_of}"
        whole = len(self.requests)
        return f"the first {kept:,} of {counted(whole, 'request')} in the trace" if kept < whole else None


def read_trace_file(path: Path, requests: int | None, seed: int) -> tuple[Outcome[Recording], dict[str, str]]:
    """The requests of a trace file, or a finding at its line; the texts that were read, for showing that line."""
    text = _read(path)
    if isinstance(text, Diagnostic):
        return Outcome(None, (text,)), {}
    texts = {str(path): text}
    if describes_windows(text):
        return _drawn_from(path, text, requests or _DRAWN, seed=seed, texts=texts), texts
    try:
        return Outcome(Recording(read_requests(text))), texts
    except TraceError as problem:
        how = "a request a line: arrival time, input tokens, output tokens, as CSV with a header or as JSON"
        return Outcome(None, (_at(path, problem.line, f"trace: {problem}", how=how),)), texts


def _drawn_from(
    path: Path, text: str, requests: int, *, seed: int, texts: dict[str, str]
) -> Outcome[Recording]:
    """Requests of one client of ServeGen."""
    beside = path.with_name(path.name.removesuffix(_ARRIVALS) + _LENGTHS)
    content = _read(beside) if path.name.endswith(_ARRIVALS) else None
    if not isinstance(content, str):
        text = f"trace: ServeGen's arrivals of one client; their lengths are wanted in `{beside.name}` beside the file"
        how = "fetch that file too, take a client that has one, or use `--bench` with this client's rate"
        return Outcome(None, (_at(path, 1, text, how=how),))
    texts[str(beside)] = content
    where = path
    try:
        windows = read_windows(text)
        where = beside
        periods = read_periods(content)
    except WindowsError as problem:
        return Outcome(None, (_at(where, problem.line, f"trace: {problem}", how=None),))
    dice = random.Random(f"{seed}/{path.name}")  # noqa: S311 - a reproducible draw
    sent = drawn(windows, periods, dice)
    found = tuple(Recorded(*row) for row in islice(sent, requests))
    if not found:
        return Outcome(None, (_at(path, 1, "trace: this client sends nothing in any window", how=None),))
    return Outcome(Recording(found, more=next(sent, None) is not None))


def _read(path: Path) -> str | Diagnostic:
    content = read_file(path, TRACE_LIMIT)
    text = decode(content) if isinstance(content, bytes) else content
    if isinstance(text, Unreadable):
        return _at(path, text.line, f"trace: {text.message}", how=text.help)
    return text


def _at(path: Path, line: int, message: str, *, how: str | None) -> Diagnostic:
    return error("DGC101", message, help=how).at(SourceSpan(str(path), line, 1, line, 2))
