"""What a bench is doing: every stage is said on stderr as it begins and ends, and none lasts for ever."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

_BEGUN = time.monotonic()


def say(text: str) -> None:
    """A line on stderr, with the seconds since the bench began and the load of the machine."""
    print(
        f"{time.monotonic() - _BEGUN:7.1f} s, load {os.getloadavg()[0]:4.1f}: {text}",
        file=sys.stderr,
        flush=True,
    )


@contextlib.contextmanager
def stage(name: str, seconds: float) -> Iterator[None]:
    """Ends the bench with a message when the stage is not over after so many seconds. Not nested; main thread only."""

    def over(_signal: int, _frame: FrameType | None) -> None:
        # SystemExit is what gets through an event loop and out of every `with`, which ends the processes
        raise SystemExit(
            f"given up: `{name}` was not over after {seconds:g} s; load average {os.getloadavg()[0]:.1f} on "
            f"{len(os.sched_getaffinity(0))} cores"
        )

    say(f"{name} (at most {seconds:g} s)")
    begun = time.monotonic()
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    say(f"{name}: {time.monotonic() - begun:.1f} s")
