"""The access log: one JSON line per request, written in batches. Never a prompt, an answer, or a key."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

MAX_PENDING = 65536


@dataclass(slots=True)
class Entry:
    """What there is to say about one request; times in milliseconds."""

    request: str
    method: bytes
    path: bytes
    workload: str
    status: int = 0
    outcome: str = ""
    prefill: str = ""
    decode: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    retries: int = 0
    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    total_ms: float = 0.0


@lru_cache(256)
def _quoted(text: bytes) -> str:
    return json.dumps(text[:256].decode("latin-1"))


class AccessLog:
    """Lines waiting for the next write; a full disk or a closed pipe never stops requests."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._pending: list[str] = []
        self._flushing: asyncio.TimerHandle | None = None
        self.dropped = 0

    def write(self, entry: Entry, now: float) -> None:
        """Add one line; `now` is wall-clock seconds. Every text in it is already limited to safe characters."""
        if self._descriptor is None:
            return
        if len(self._pending) >= MAX_PENDING:
            self.dropped += 1
            return
        e = entry
        self._pending.append(
            f'{{"time":{now:.3f},"request":"{e.request}","method":{_quoted(e.method)},"path":{_quoted(e.path)},'
            f'"class":"{e.workload}","status":{e.status},"outcome":"{e.outcome}","prefill":"{e.prefill}",'
            f'"decode":"{e.decode}","input_tokens":{e.input_tokens},"output_tokens":{e.output_tokens},'
            f'"retries":{e.retries},"queue_ms":{e.queue_ms:.2f},"prefill_ms":{e.prefill_ms:.2f},'
            f'"ttft_ms":{e.ttft_ms:.2f},"total_ms":{e.total_ms:.2f}}}\n'
        )
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(0.2, self.flush)

    def flush(self) -> None:
        """Write what is pending."""
        self._flushing = None
        lines, self._pending = self._pending, []
        if self._descriptor is None or not lines:
            return
        view = memoryview("".join(lines).encode())
        with suppress(OSError):
            while view:
                view = view[os.write(self._descriptor, view) :]
            return
        self.dropped += len(lines)
