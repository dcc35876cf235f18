"""The figures of one run in a result file, by key: what stands there and cannot be read is noted, never passed over."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from disaggc.perf.calibration.reading import UNKNOWN, Dropped

_SHOWN = 40
Json = Mapping[str, Any]


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
        """A figure that is not below zero, or NaN. `inf` is written as text."""
        value = self.run.get(key)
        if value is None:
            return UNKNOWN
        try:
            found = UNKNOWN if isinstance(value, bool) else float(cast("str | float", value))
        except (TypeError, ValueError, OverflowError):
            found = UNKNOWN
        if math.isnan(found) and not isinstance(value, float):
            self._note(key, value, "is not a number")
        if found < 0:
            self._note(key, value, "is below zero")
            return UNKNOWN
        return found

    def time(self, *keys: str) -> float:
        """The first of these that is above zero: tools write 0 for a time that no request had."""
        for key in keys:
            found = self.number(key)
            if 0 < found < math.inf:
                return found
        return UNKNOWN

    def count(self, key: str) -> int:
        """A whole number; 0 where there is none."""
        found = self.number(key)
        return int(found) if math.isfinite(found) else 0

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.run.get(key)
        return value if isinstance(value, str) and value else None

    def _note(self, key: str, value: object, why: str) -> None:
        shown = str(value)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        self._dropped.append(Dropped(self.name, f"`{self._prefix}{key}` dropped", f"`{shown}` {why}"))
