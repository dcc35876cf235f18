"""Step times read off measured tables instead of computed from peaks: plain numbers of one replica.

Stands beside the roofline inside `engine_model`; which library measured them is not known here, only its name.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from disaggc.perf.calibration.least_squares import fit_relative

_HALVINGS = 100


@dataclass(frozen=True, slots=True)
class StepTable:
    """Seconds of one data-parallel rank. source: who measured, with version.

    batches, fixed_s: a decode step by running sequences with no context; token_s: for each token of context of all of
    them. prefill_*: of a prompt step, for each prompt token, for each squared one.
    """

    batches: tuple[float, ...]
    fixed_s: tuple[float, ...]
    token_s: float
    prefill_fixed_s: float
    prefill_token_s: float
    prefill_square_s: float
    source: str

    @classmethod
    def of(
        cls,
        decode: Mapping[tuple[int, int], float],
        prefill: Mapping[tuple[int, int], float],
        *,
        source: str,
    ) -> StepTable:
        """From measured points: (batch, context or prompt tokens of each) -> seconds.

        A step never gets shorter with the batch, so that the largest batch under a limit is well defined: kernels tuned
        for some batches only are evened out.
        """
        token_s, levels = _shared_slope(decode)
        prompts = [[1.0, float(n * each), float(n * each * each)] for n, each in prefill]
        prompt_fixed, token, square = fit_relative(prompts, list(prefill.values())).coefficients
        fixed = _growing(list(levels.values()))
        return cls(tuple(map(float, levels)), fixed, token_s, prompt_fixed, token, square, source)

    def decode(self, batch: float, context: float) -> float:
        """One decode step of a rank with `batch` sequences of `context` tokens each; the last segment goes on."""
        at = bisect_right(self.batches, batch)
        if at == 0 or len(self.batches) == 1:
            fixed = self.fixed_s[0]
        else:
            right = min(at, len(self.batches) - 1)
            (low, high), (first, last) = (
                self.batches[right - 1 : right + 1],
                self.fixed_s[right - 1 : right + 1],
            )
            fixed = first + (batch - low) / (high - low) * (last - first)
        return fixed + batch * context * self.token_s


def _shared_slope(points: Mapping[tuple[int, int], float]) -> tuple[float, dict[int, float]]:
    """Seconds for a token of context at every batch, and the level of each batch: least squares on relative residuals.

    At a given slope the best level of a batch is a weighted mean, so one search over the slope is enough.
    """
    groups: dict[int, list[tuple[float, float]]] = {}
    for (batch, context), seconds in sorted(points.items()):
        groups.setdefault(batch, []).append((float(batch * context), seconds))

    def level(seen: Sequence[tuple[float, float]], slope: float) -> float:
        weights = [s**-2 for _, s in seen]
        rest = math.fsum(w * (s - slope * t) for w, (t, s) in zip(weights, seen, strict=True))
        return max(rest / math.fsum(weights), 0.0)

    def miss(slope: float) -> float:
        return math.fsum(
            ((level(seen, slope) + slope * t) / s - 1) ** 2 for seen in groups.values() for t, s in seen
        )

    low, high = 0.0, max(s / t for seen in groups.values() for t, s in seen)
    for _ in range(_HALVINGS):
        third = (high - low) / 3
        if miss(low + third) < miss(high - third):
            high -= third
        else:
            low += third
    slope = (low + high) / 2
    return slope, {batch: level(seen, slope) for batch, seen in groups.items()}


def _growing(values: Sequence[float]) -> tuple[float, ...]:
    """The nearest series that never falls: neighbours in the wrong order become their mean."""
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([value])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return tuple(_mean(block) for block in blocks for _ in block)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
