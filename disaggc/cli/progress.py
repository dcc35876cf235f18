"""A progress bar on a terminal's stderr; silent everywhere else. Knows no verb."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

_WIDTH = 30


@dataclass(slots=True)
class Bar:
    """One line that is drawn over. on: whether anybody looks."""

    on: bool
    _drawn: str = ""

    @classmethod
    def on_terminal(cls, *, quiet: bool) -> Bar:
        """On where stderr is a terminal and --quiet was not given."""
        return cls(not quiet and sys.stderr.isatty())

    def show(self, what: str, share: float) -> None:
        """Draw the bar anew."""
        if not self.on:
            return
        full = round(max(0.0, min(share, 1.0)) * _WIDTH)
        text = f"{what[:24]:24} [{'#' * full}{'.' * (_WIDTH - full)}] {share:4.0%}"
        if text != self._drawn:
            sys.stderr.write("\r" + text)
            sys.stderr.flush()
            self._drawn = text

    def part(self, what: str, number: int, parts: int) -> Callable[[int, int], None]:
        """What to call with (done, of how many) in one of so many equal parts."""

        def show(done: int, total: int) -> None:
            self.show(what, (number + done / total) / parts)

        return show

    def clear(self) -> None:
        """Leave no trace of it."""
        if self._drawn:
            sys.stderr.write("\r" + " " * len(self._drawn) + "\r")
            sys.stderr.flush()
            self._drawn = ""
