"""How far measured values lay from predictions that had never seen them: factors on the printed 80 % range.

The factors stand in `spread.json`, which `python -m tests.fidelity --spread` writes from published measurements: for
each kind of figure and each basis of a prediction, by how much the range that follows from the constants must be
stretched, downwards and upwards, so that it holds four in five values of a source it has not seen.
The quantiles weigh sources equally and allow for how few sources there are. `without` holds the same with one source
left out, so that a source can be judged by factors that have not seen it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from disaggc.perf.estimate import Basis

Measure = Literal["first_token", "first_token_tail", "token", "token_tail", "flow"]
"""flow: tokens and requests per second, and the end-to-end time that goes with them. Tails: 99 of 100."""
MEASURES: tuple[Measure, ...] = ("first_token", "first_token_tail", "token", "token_tail", "flow")
LEAST = 0.03
"""Two equal runs differ by that much: no side of a range that is open at all is narrower."""
WIDE = 1.0
"""A side this wide already holds a layout that may be overloaded: it is stretched by no more than one of this width."""
_OPEN = 1e-4
FILE = Path(__file__).with_name("spread.json")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Factors on the logarithmic width of the lower and of the upper side."""

    below: float = 1.0
    above: float = 1.0

    def applied(self, value: float, low: float, high: float) -> tuple[float, float]:
        """The stretched range. A side that is closed stays closed: no layout serves more than is offered."""
        if value <= 0 or not math.isfinite(value):
            return low, high
        down, up = _stretched(side(value, low), self.below), _stretched(side(high, value), self.above)
        return min(low, value / math.exp(down)), max(high, value * math.exp(up))


def side(upper: float, lower: float) -> float:
    """Logarithmic width of one side of a range, at least that of two equal runs; zero where it is closed."""
    if lower <= 0 or upper <= 0:
        return 0.0
    width = math.log(upper / lower)
    return max(width, LEAST) if width > _OPEN else 0.0


def _stretched(width: float, factor: float) -> float:
    return width + (factor - 1) * min(width, WIDE)


def factor_for(width: float, miss: float) -> float:
    """The factor at which a side of this width (above zero) just holds a value that lies `miss` beyond the middle."""
    return miss / width if miss <= width else 1 + (miss - width) / min(width, WIDE)


Stretches = Mapping[Measure, Stretch]


@lru_cache(maxsize=16)
def stretches(basis: Basis, without: str | None = None) -> Stretches:
    """The factors for predictions on this basis; with a source left out where it is among those they come from.

    Of carried predictions nobody measured how wide they must be as a whole: theirs are those of the priors.
    """
    document = json.loads(FILE.read_text(encoding="utf-8"))
    known = document["prior" if basis in {Basis.PRIOR, Basis.CARRIED} else "calibrated"]
    chosen = known["without"].get(without) or known["all"]
    return {measure: Stretch(chosen[measure]["below"], chosen[measure]["above"]) for measure in MEASURES}
