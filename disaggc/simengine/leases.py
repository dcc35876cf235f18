"""KV that prefill keeps for a decode: under which name, until when, and what came of it.

After its end a lease's blocks go back to the pool, and whoever reads them later reads what is there then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Lease:
    """Blocks of one finished sequence. key: what a concurrent dialect asks for it by."""

    name: str
    key: str
    blocks: list[int]
    tokens: int
    until: float


@dataclass(slots=True)
class Leases:
    """All leases of one engine. release: gives blocks back to the pool."""

    release: Callable[[list[int]], None]
    _by_name: dict[str, Lease] = field(default_factory=dict)
    _by_key: dict[str, Lease] = field(default_factory=dict)
    _expired: dict[str, None] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def blocks(self) -> int:
        """Blocks pinned by leases."""
        return sum(len(lease.blocks) for lease in self._by_name.values())

    @property
    def owned(self) -> set[int]:
        """Which blocks those are."""
        return {block for lease in self._by_name.values() for block in lease.blocks}

    def add(self, lease: Lease) -> None:
        """Pin the blocks of a sequence."""
        self._by_name[lease.name] = lease
        self._by_key[lease.key] = lease

    def by_key(self, key: str) -> Lease | None:
        """The lease a concurrent decode asks for."""
        return self._by_key.get(key)

    def free(self, name: str) -> str:
        """The other side is done with it: `freed`, `late` when the lease had ended before, `unknown` otherwise."""
        lease = self._by_name.pop(name, None)
        if lease is None:
            return "late" if self._expired.pop(name, "no") is None else "unknown"
        self._by_key.pop(lease.key, None)
        self.release(lease.blocks)
        return "freed"

    def extend(self, name: str, until: float) -> None:
        """A sign of life: the lease lasts at least until then."""
        lease = self._by_name.get(name)
        if lease is not None:
            lease.until = max(lease.until, until)

    def expire(self, now: float) -> int:
        """End every lease that is over; how many."""
        over = [lease for lease in self._by_name.values() if lease.until <= now]
        for lease in over:
            self.free(lease.name)
            self._expired[lease.name] = None
        while len(self._expired) > 10000:
            del self._expired[next(iter(self._expired))]
        return len(over)
