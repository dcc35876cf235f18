"""Prompt length without a tokenizer: bytes times a ratio learned from the engines' own `usage`, with a margin.

Pure: a running mean and spread. What to do with the answer is the caller's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PRIOR_TOKENS_PER_BYTE: Final = 0.25
"""About four bytes of English or code per token, as most tokenizers of today give."""
LEARNED_AFTER: Final = 32
MARGIN_SIGMAS: Final = 3.0
CLOSE: Final = 0.10


class LengthVerdict(StrEnum):
    """What the estimate says about a limit."""

    FITS = "fits"
    TOO_LONG = "too-long"
    ASK = "ask"
    """Within 10 % of the limit: only a tokenizer can tell."""


@dataclass
class LengthRatio:
    """Tokens per byte: exponentially weighted mean and variance."""

    memory: float = 256.0
    mean: float = PRIOR_TOKENS_PER_BYTE
    variance: float = 0.0
    samples: int = 0

    def learn(self, size_bytes: int, tokens: int) -> None:
        """An answer told how many tokens a prompt of that size had."""
        if size_bytes <= 0 or tokens <= 0:
            return
        self.samples += 1
        step = max(1 / self.memory, 1 / self.samples)
        delta = tokens / size_bytes - self.mean
        self.mean += step * delta
        self.variance = (1 - step) * (self.variance + step * delta * delta)

    def tokens(self, size_bytes: int) -> float:
        """The expected number of tokens."""
        return size_bytes * self.mean

    def at_least(self, size_bytes: int) -> float:
        """A number of tokens the prompt very probably has; 0 until enough was seen."""
        if self.samples < LEARNED_AFTER:
            return 0.0
        return size_bytes * max(0.0, self.mean - MARGIN_SIGMAS * math.sqrt(self.variance))

    def verdict(self, size_bytes: int, limit: float) -> LengthVerdict:
        """Refuse only what is too long even at the low end; ask within 10 %; else let the engine decide."""
        expected = self.tokens(size_bytes)
        if expected < (1 - CLOSE) * limit:
            return LengthVerdict.FITS
        if abs(expected - limit) <= CLOSE * limit:
            return LengthVerdict.ASK
        if self.at_least(size_bytes) > limit:
            return LengthVerdict.TOO_LONG
        return LengthVerdict.FITS
