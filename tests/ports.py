"""Ports that are a run's own for as long as it lives, and the name of what such a run leaves behind.

A port that was free for a moment is nobody's: another process connects from it before it is listened on again. So ports
are taken below the range of outgoing connections, from a block that one process holds at a time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

FIRST, SIZE, BLOCKS = 23_000, 600, 16
HERE = "127.0.0.1"
RUN = "DISAGGC_TEST_RUN"
"""What a run writes into the environment of its processes, so that a later one knows them."""


def mark(block: int) -> socket.socket | None:
    """Holds a block while it is open, None where another process does; gone with the process, whatever ends it."""
    held = socket.socket()
    try:
        held.bind((HERE, FIRST + block * SIZE))
    except OSError:
        held.close()
        return None
    return held


def name_of(block: int) -> str:
    """Of the run that holds a block; marks are seen within one network namespace only, so that is in it."""
    place = Path("/proc/self/ns/net")
    return f"disaggc-test-{place.stat().st_ino if place.exists() else 0}-{block}"


class Ports:
    """A block of ports that no other run on this machine takes from."""

    def __init__(self) -> None:
        for self.block in range(BLOCKS):
            held = mark(self.block)
            if held is not None:
                self._mark, self._next = held, self._numbers()
                return
        raise RuntimeError("other runs have every block of ports")

    def _numbers(self) -> Iterator[int]:
        """The first is the mark's; a port comes round again after all others."""
        begin = FIRST + self.block * SIZE
        while True:
            yield from range(begin + 1, begin + SIZE)

    def take(self) -> int:
        """One nobody listens on, and that was not taken for the longest time."""
        for _ in range(SIZE):
            port = next(self._next)
            with contextlib.suppress(OSError), socket.create_server((HERE, port)):
                return port
        raise RuntimeError("no port is left in the block")


@functools.cache
def ports() -> Ports:
    """Those of this process."""
    return Ports()


_TAKING = threading.Lock()
"""Stacks start in threads: two that asked first at once would each have got a block, and one of them lost its mark."""


def own_block() -> int:
    """The block of this process."""
    with _TAKING:
        return ports().block


def free_port() -> int:
    """A port of this process's block."""
    with _TAKING:
        return ports().take()


def marked() -> dict[str, str]:
    """The environment of a process that does not outlive this run."""
    return {**os.environ, RUN: name_of(own_block())}
