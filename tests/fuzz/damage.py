"""Inputs that are nearly right, a little damaged."""

from __future__ import annotations

import random
from collections.abc import Sequence


def damaged(rng: random.Random, raw: bytes, pieces: Sequence[bytes], *, most: int) -> bytes:
    """The input after 1 to `most` changes: a piece put in, bytes taken out, one replaced, some doubled."""
    text = bytearray(raw)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                text[at:at] = rng.choice(pieces)
            case 1:
                del text[at : at + rng.randrange(20)]
            case 2 if at < len(text):
                text[at] = rng.randrange(256)
            case _:
                text[at:at] = text[at : at + rng.randrange(30)]
    return bytes(text)
