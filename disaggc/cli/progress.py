"""Progress on stderr: a bar on a terminal, lines that become rarer elsewhere once it takes long. Knows no verb."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_WIDTH = 30
_LONG_S = 2.0
"""From then on whoever reads a pipe wants to know that something goes on, and again each time it took twice as long."""


@dataclass(slots=True)
class Bar:
    """One line that is drawn over. drawn: whether on a terminal; quiet: nothing at all."""

    drawn: bool
    quiet: bool
    began_s: float
    _due_s: float = _LONG_S
    _text: str = ""

    @classmethod
    def of(cls, *, quiet: bool) -> Bar:
        """Begins now."""
        return cls(sys.stderr.isatty(), quiet, time.monotonic())

    def show(self, what: str, share: float) -> None:
        """So much of it is done."""
        if self.drawn:
            full = round(max(0.0, min(share, 1.0)) * _WIDTH)
            self._draw(f"{what[:24]:24} [{'#' * full}{'.' * (_WIDTH - full)}] {share:4.0%}")
        else:
            self._say(f"{what}: {share:.0%} done")

    def part(self, what: str, number: int, parts: int) -> Callable[[int, int], None]:
        """What to call with (done, of how many) in one of so many equal parts."""

        def show(done: int, total: int) -> None:
            self.show(what, (number + done / total) / parts)

        return show

    @contextmanager
    def unmeasured(self, what: str) -> Iterator[None]:
        """While something runs that does not know how much of it is done."""
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(what, over), daemon=True)
        if self.drawn:
            self._draw(f"{what} ...")
        elif not self.quiet:
            watch.start()
        try:
            yield
        finally:
            over.set()
            if watch.is_alive():
                watch.join()
            self.clear()

    def clear(self) -> None:
        """Leave no trace of what was drawn."""
        if self._text:
            sys.stderr.write("\r" + " " * len(self._text) + "\r")
            sys.stderr.flush()
            self._text = ""

    def _watch(self, what: str, over: threading.Event) -> None:
        while not over.wait(self._due_s - self._taken_s()):
            self._say(f"{what}: {self._taken_s():.0f} s so far")

    def _draw(self, text: str) -> None:
        if text != self._text and not self.quiet:
            sys.stderr.write("\r" + text)
            sys.stderr.flush()
            self._text = text

    def _say(self, text: str) -> None:
        if self._taken_s() >= self._due_s and not self.quiet:
            self._due_s = 2 * self._taken_s()
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def _taken_s(self) -> float:
        return time.monotonic() - self.began_s
