"""A progress bar on a terminal's stderr; elsewhere a line once waiting has become long. Knows no verb."""

from __future__ import annotations

import sys
import time
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


_LONG_S = 2.0
"""From then on whoever reads a pipe wants to know that something goes on."""


@dataclass(slots=True)
class Waiting:
    """A bar where somebody looks, one line in a pipe where it takes long. Gone when its work is done."""

    what: str
    bar: Bar
    said: bool
    began_s: float

    @classmethod
    def of(cls, what: str, *, quiet: bool) -> Waiting:
        """Begins now."""
        bar = Bar.on_terminal(quiet=quiet)
        return cls(what, bar, quiet or bar.on, time.monotonic())

    def show(self, done: int, total: int) -> None:
        """So many of so many are done."""
        self.bar.show(self.what, done / total)
        if not self.said and time.monotonic() - self.began_s > _LONG_S:
            self.said = True
            sys.stderr.write(f"{self.what}: {done} of {total} done\n")
            sys.stderr.flush()
