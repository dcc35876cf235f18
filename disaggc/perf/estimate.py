"""A predicted number: never bare, always with its range, its terms and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Basis(StrEnum):
    """What a prediction rests on, weakest first."""

    PRIOR = "prior"
    CARRIED = "carried"
    """Another shape of the same model on the same accelerator was measured."""
    TABLES = "tables"
    """Kernels that somebody else measured on this accelerator, put together for the model."""
    CALIBRATED = "calibrated"
    MEASURED = "measured"


_ORDER = (Basis.PRIOR, Basis.CARRIED, Basis.TABLES, Basis.CALIBRATED, Basis.MEASURED)


@dataclass(frozen=True, slots=True)
class Term:
    """One addend of a prediction, in the prediction's unit."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """value with an 80 % range [low, high]; `terms` add up to value where the model is a sum."""

    value: float
    low: float
    high: float
    basis: Basis = Basis.PRIOR
    terms: tuple[Term, ...] = ()

    def scaled(self, factor: float) -> Estimate:
        """The same estimate in another unit or multiple (factor > 0)."""
        terms = tuple(Term(t.name, t.value * factor) for t in self.terms)
        return Estimate(self.value * factor, self.low * factor, self.high * factor, self.basis, terms)

    def plus(self, other: Estimate) -> Estimate:
        """Sum of two estimates whose errors move together (the cautious assumption)."""
        return Estimate(
            self.value + other.value,
            self.low + other.low,
            self.high + other.high,
            weakest(self.basis, other.basis),
            self.terms + other.terms,
        )


def weakest(*bases: Basis) -> Basis:
    """A result is no better founded than its weakest input."""
    return min(bases, key=_ORDER.index, default=Basis.PRIOR)
