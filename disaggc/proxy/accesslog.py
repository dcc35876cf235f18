"""The access log: one JSON line per request, written in batches. Never a prompt, an answer, or a key."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from disaggc.proxy.logline import Entry

MAX_PENDING: Final = 65536
_TEXT: Final = 256
"""Bytes of a path or method that are logged."""
_encode_lines: Final = msgspec.json.Encoder().encode_lines


@lru_cache(maxsize=256)
def text(raw: bytes) -> str:
    """A method or path, as much of it as is logged."""
    return raw[:_TEXT].decode("latin-1")


def in_ms(seconds: float) -> float:
    """Milliseconds, in hundredths: more digits would only make lines longer."""
    return int(seconds * 1e5) / 100


class AccessLog:
    """Entries waiting for the next write; a full disk or a closed pipe never stops requests."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._pending: list[Entry] = []
        self._flushing: asyncio.TimerHandle | None = None
        self.dropped = 0

    def write(self, entry: Entry) -> None:
        """Add one line; the entry is not changed any more."""
        if self._descriptor is None:
            return
        if len(self._pending) >= MAX_PENDING:
            self.dropped += 1
            return
        self._pending.append(entry)
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(0.2, self.flush)

    def flush(self) -> None:
        """Write what is pending."""
        self._flushing = None
        entries, self._pending = self._pending, []
        if self._descriptor is None or not entries:
            return
        view = memoryview(_encode_lines(entries))
        with suppress(OSError):
            while view:
                view = view[os.write(self._descriptor, view) :]
            return
        self.dropped += len(entries)
