"""Prompt prefixes as chains of block hashes, and a bounded memory of which replica has seen which.

Works on the bytes of the request, not on tokens: equal bytes give equal tokens, and that is all that is needed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

BLOCK_BYTES: Final = 1024
MAX_BLOCKS: Final = 32


def block_keys(prompt: bytes, block: int = BLOCK_BYTES, limit: int = MAX_BLOCKS) -> tuple[bytes, ...]:
    """One key for each whole leading block; a key stands for everything before it too."""
    keys = []
    running = hashlib.blake2b(digest_size=8)
    for start in range(0, min(len(prompt) - block + 1, limit * block), block):
        running.update(prompt[start : start + block])
        keys.append(running.digest())
    return tuple(keys)


class PrefixMemory:
    """Which replicas have served which prefixes lately; the least recently used is forgotten first."""

    def __init__(self, capacity: int = 65536) -> None:
        self._capacity = capacity
        self._seen: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def note(self, replica: str, keys: tuple[bytes, ...]) -> None:
        """The replica now holds these prefixes."""
        for key in keys:
            self._seen[replica, key] = None
            self._seen.move_to_end((replica, key))
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)

    def cached_bytes(self, replica: str, keys: tuple[bytes, ...], block: int = BLOCK_BYTES) -> int:
        """How many leading bytes of the prompt the replica has probably cached."""
        depth = 0
        for key in keys:
            if (replica, key) not in self._seen:
                break
            depth += 1
        return depth * block

    def forget(self, replica: str) -> None:
        """The replica restarted: its cache is empty."""
        for entry in [entry for entry in self._seen if entry[0] == replica]:
            del self._seen[entry]

    def __len__(self) -> int:
        return len(self._seen)
