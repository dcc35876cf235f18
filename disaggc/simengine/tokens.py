"""Text and token ids of the double: four bytes are one token, and a generated token is a word of four letters.

Reversible without a vocabulary file, so that token counts, `/detokenize` and prompts made of earlier answers agree.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from hashlib import blake2b

VOCABULARY = 4096
EOS = 2
_SHORT = 1 << 32
"""The last one to three bytes of a text: their value and their number above it."""
_MASK = (1 << 64) - 1
_LETTERS = "aeioubcdfgklmnpr"
WORDS: tuple[bytes, ...] = tuple(
    f" {_LETTERS[i >> 8]}{_LETTERS[i >> 4 & 15]}{_LETTERS[i & 15]}".encode() for i in range(VOCABULARY)
)
"""Texts of the tokens that are generated; none needs escaping in JSON."""
WORD_IDS: tuple[int, ...] = tuple(int.from_bytes(word, "little") for word in WORDS)


def tokenize(text: str) -> array[int]:
    """Token ids of a text."""
    data = text.encode("utf-8", "surrogatepass")
    whole = len(data) // 4 * 4
    ids = array("I", data[:whole])
    if sys.byteorder == "big":
        ids.byteswap()
    found = array("q", ids)
    if whole < len(data):
        rest = data[whole:]
        found.append(_SHORT * len(rest) + int.from_bytes(rest, "little"))
    return found


def detokenize(ids: Sequence[int]) -> str:
    """The text of token ids; an id outside the scheme becomes a replacement character."""
    parts = []
    for token in ids:
        size, value = divmod(token, _SHORT)
        if size == 0:
            parts.append(value.to_bytes(4, "little"))
        elif 1 <= size <= 3:
            parts.append((value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))
        else:
            parts.append(b"\xef\xbf\xbd")
    return b"".join(parts).decode("utf-8", "replace")


class Continuation:
    """The greedy continuation of one context: the n-th word depends on the whole context and nothing else."""

    __slots__ = ("_state",)

    def __init__(self, context: bytes, choice: int = 0) -> None:
        self._state = int.from_bytes(context[:8], "little") ^ (choice * 0x9E3779B97F4A7C15 & _MASK)

    def next(self) -> int:
        """Index of the next word."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) & _MASK
        return self._state >> 52


def digests(ids: array[int], block: int) -> list[bytes]:
    """For each block of a prompt, the last one maybe partial: a digest of every token up to its end."""
    running = blake2b(digest_size=8)
    data = memoryview(ids).cast("B")
    step = block * ids.itemsize
    found = []
    for start in range(0, len(data), step):
        running.update(data[start : start + step])
        found.append(running.digest())
    return found
