"""The KV block pool: what each block holds, who uses it, which prefixes are cached, what is leased to decode.

A block's content is the digest of all tokens up to its end, with the digest it follows. Whoever reads blocks that
were given to another prompt meanwhile therefore sees another content, as with real memory. Knows no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

EMPTY = bytes(8)


class Content(NamedTuple):
    """What a block holds."""

    before: bytes
    """Digest of the tokens before the block."""
    digest: bytes
    """Digest of all tokens up to its end."""


_NOTHING = Content(EMPTY, EMPTY)


class BlockPool:
    """Blocks 1..count; 0 is never given out."""

    def __init__(self, count: int, *, caching: bool) -> None:
        self.count, self._caching = count, caching
        self._contents: list[Content] = [_NOTHING] * (count + 1)
        self._users = [0] * (count + 1)
        self._free: OrderedDict[int, None] = OrderedDict((i, None) for i in range(1, count + 1))
        self._cached: dict[bytes, int] = {}
        self._key: list[bytes | None] = [None] * (count + 1)

    @property
    def free(self) -> int:
        """Blocks nobody uses; cached ones among them."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks somebody uses."""
        return self.count - len(self._free)

    def take(self, number: int) -> list[int]:
        """So many blocks, least recently used first; what was cached in them is forgotten. ValueError when short."""
        if number > len(self._free):
            raise ValueError("not enough free blocks")
        taken = []
        for _ in range(number):
            block, _ = self._free.popitem(last=False)
            key = self._key[block]
            if key is not None:
                del self._cached[key]
                self._key[block] = None
            self._users[block] = 1
            taken.append(block)
        return taken

    def hits(self, keys: list[bytes]) -> list[int]:
        """Cached blocks of the longest prefix of `keys`; now used by the caller too."""
        found: list[int] = []
        if not self._caching:
            return found
        for key in keys:
            block = self._cached.get(key)
            if block is None:
                break
            found.append(block)
        for block in found:
            if self._users[block] == 0:
                del self._free[block]
            self._users[block] += 1
        return found

    def write(self, block: int, content: Content, key: bytes | None) -> None:
        """Fill a block; with a key it can be found by later prompts."""
        self._contents[block] = content
        if key is not None and self._caching and key not in self._cached:
            self._cached[key] = block
            self._key[block] = key

    def give_back(self, blocks: list[int]) -> None:
        """One user less for each; the last block of a prompt is reused first, contents stay until then."""
        users, free = self._users, self._free
        for block in reversed(blocks):
            users[block] -= 1
            if users[block] == 0:
                free[block] = None

    def content(self, block: int) -> Content:
        """What the block holds now, whoever asks; nothing for a block there is not."""
        return self._contents[block] if 0 < block <= self.count else _NOTHING

    def overwrite(self, blocks: list[int]) -> None:
        """Those that nobody uses hold another prompt now."""
        for block in blocks:
            key = self._key[block]
            if self._users[block] == 0:
                if key is not None:
                    del self._cached[key]
                    self._key[block] = None
                self._contents[block] = Content(EMPTY, blake2b(b"%d" % block, digest_size=8).digest())

    def reset(self) -> None:
        """Forget every cached prefix."""
        for block in self._cached.values():
            self._key[block] = None
        self._cached.clear()


def context_of(contents: list[Content]) -> bytes:
    """What attention sees over these blocks: the last digest where they follow one another, else a mix of them all."""
    before = EMPTY
    for content in contents:
        if content.before != before or content.digest == EMPTY:
            return blake2b(b"".join(c.before + c.digest for c in contents), digest_size=8).digest()
        before = content.digest
    return before


def chained(digests: list[bytes]) -> list[Content]:
    """The contents of a prompt's blocks, in order."""
    return [Content(before, own) for before, own in zip([EMPTY, *digests], digests, strict=False)]
