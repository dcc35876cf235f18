"""Admission: what fits in flight, a bounded queue by priority, and how long to wait before trying again.

Pure: it orders and counts; waking and waiting are the proxy's.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from disaggc.routing.limits import Admission

T = TypeVar("T")


class Sized(Protocol):
    """What holds requests and KV."""

    @property
    def max_seqs(self) -> int | None:
        """Sequences it runs at once; None = not limited by it."""

    @property
    def kv_tokens(self) -> int | None:
        """Tokens of KV it holds; None = not limited by it."""


def has_room(entry: Sized, limits: Admission, *, requests: float, tokens: float, ask: float) -> bool:
    """Whether a replica with this in flight can take `ask` tokens more; an empty one takes any request."""
    if requests <= 0:
        return True
    if entry.max_seqs is not None and requests + 1 > entry.max_seqs * limits.seqs_overcommit:
        return False
    return entry.kv_tokens is None or tokens + ask <= entry.kv_tokens * limits.kv_overcommit


class WaitingLine(Generic[T]):
    """A bounded queue: higher priority first, first come first served within one."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.entries: list[tuple[int, int, T]] = []
        """A heap: who is next stands first."""
        self._arrivals = 0

    def offer(self, item: T, priority: int = 0) -> bool:
        """Whether it may wait; False when the line is full."""
        if len(self.entries) >= self.limit:
            return False
        self._arrivals += 1
        heapq.heappush(self.entries, (-priority, self._arrivals, item))
        return True

    def first(self) -> T | None:
        """Who is next, still in the line."""
        return self.entries[0][2] if self.entries else None

    def take(self) -> T:
        """Who is next, out of the line."""
        return heapq.heappop(self.entries)[2]

    def leave(self, item: T) -> None:
        """Someone gave up waiting."""
        self.entries = [entry for entry in self.entries if entry[2] is not item]
        heapq.heapify(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass
class ServedRate:
    """Completions per second, forgetting with time constant `horizon_s`; gives an honest Retry-After."""

    horizon_s: float = 10.0
    value: float = 0.0
    last: float | None = None

    def finished(self, now: float) -> None:
        """One request completed at `now`."""
        if self.last is not None:
            self.value *= math.exp(-(now - self.last) / self.horizon_s)
        self.value += 1 / self.horizon_s
        self.last = now

    def retry_after(self, waiting: int, now: float) -> int:
        """Whole seconds until the line will probably have moved, 1 to 60."""
        rate = self.value * math.exp(-(now - self.last) / self.horizon_s) if self.last is not None else 0.0
        if rate * 60 <= waiting + 1:
            return 60 if rate > 0 else 1
        return max(1, math.ceil((waiting + 1) / rate))
