"""The figures of one run in a result file, by key: what stands there and cannot be read is noted, never passed over."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from disaggc.perf.calibration.reading import UNKNOWN, Dropped

_SHOWN = 40
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_UNBOUNDED = re.compile(r"\s*[-+]?inf(inity)?\s*", re.ASCII | re.IGNORECASE)
_MOST = 1e9
"""Requests, replicas or blocks that no run has."""
Json = Mapping[str, Any]
Choice = TypeVar("Choice", bound=str)


class Figures:
    """One JSON object of a run. prefix: where it stands in the run's own object; dropped: where findings go."""

    def __init__(self, run: Json, name: str, dropped: list[Dropped], *, prefix: str = "") -> None:
        self.run, self.name, self._dropped, self._prefix = run, name, dropped, prefix

    def within(self, key: str) -> Figures | None:
        """The object under that key; None where there is none."""
        block = self.run.get(key)
        if isinstance(block, dict):
            return Figures(block, self.name, self._dropped, prefix=f"{self._prefix}{key}.")
        if block is not None:
            self._note(key, block, "is not an object")
        return None

    def number(self, key: str) -> float:
        """A figure that is finite and not below zero, or NaN."""
        found = self.unbounded(key)
        if math.isinf(found):
            self.note(key, "is not finite")
            return UNKNOWN
        return found

    def unbounded(self, key: str) -> float:
        """The same where infinity has a meaning; it may be written as text."""
        value = self.run.get(key)
        if value is None:
            return UNKNOWN
        found = _read(value)
        if math.isnan(found):
            self._note(key, value, "is not a number")
        if found < 0:
            self._note(key, value, "is below zero")
            return UNKNOWN
        return found

    def time(self, *keys: str) -> float:
        """The first of these that is above zero: tools write 0 for a time that no request had."""
        for key in keys:
            if (found := self.number(key)) > 0:
                return found
        return UNKNOWN

    def positive(self, key: str) -> float:
        """A figure that cannot be zero."""
        found = self.number(key)
        if found == 0:
            self.note(key, "is zero")
            return UNKNOWN
        return found

    def cap(self, key: str) -> float:
        """Most requests in flight: infinite, or at least one; NaN where there is none (tools write 0 for it)."""
        found = self.unbounded(key)
        if 0 < found < 1:
            self.note(key, "is less than one request")
        return found if found >= 1 else UNKNOWN

    def count(self, key: str) -> int:
        """A whole number; 0 where there is none."""
        found = self.number(key)
        if math.isnan(found):
            return 0
        if found > _MOST or not found.is_integer():
            self.note(key, "is no count" if found > _MOST else "is not a whole number")
            return 0
        return int(found)

    def choice(self, key: str, known: Sequence[Choice]) -> Choice | None:
        """One of these words; None where there is none."""
        value = self.run.get(key)
        found = next((word for word in known if word == value), None)
        if found is None and value is not None:
            self._note(key, value, f"is none of {', '.join(known)}")
        return found

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.run.get(key)
        if value is not None and not isinstance(value, str):
            self._note(key, value, "is not a text")
        return value if isinstance(value, str) and value else None

    def note(self, key: str, why: str) -> None:
        """The figure under that key is left aside."""
        self._note(key, self.run.get(key), why)

    def _note(self, key: str, value: object, why: str) -> None:
        shown = str(value)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        self._dropped.append(Dropped(self.name, f"`{self._prefix}{key}` dropped", f"`{shown}` {why}"))


def _read(value: object) -> float:
    """A number, or a text that is one in JSON's own notation or says infinity; NaN for anything else."""
    if isinstance(value, str) and (_NUMBER.fullmatch(value) or _UNBOUNDED.fullmatch(value)):
        return float(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return UNKNOWN
    return UNKNOWN
