"""An integer linear program as plain data: variables from zero, rows with the requirement they state, aims in order.

Knows no solver library and nothing of placement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

Terms = tuple[tuple[int, int], ...]
"""(variable, coefficient)."""


@dataclass(frozen=True, slots=True)
class Tag:
    """The requirement a row states, so that conflicts speak of requirements. service "" = the cluster."""

    service: str
    kind: str
    scenario: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """low <= sum(terms) <= high; None = open. tag None: structure that is never dropped."""

    terms: Terms
    low: int | None
    high: int | None
    tag: Tag | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """One goal of the lexicographic order; always minimised."""

    name: str
    terms: Terms


@dataclass(slots=True)
class Program:
    """Variables 0..upper, rows and goals. counts: variable of each service's option counts."""

    upper: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    aims: list[Aim] = field(default_factory=list)
    counts: list[tuple[int, ...]] = field(default_factory=list)

    def variable(self, upper: int) -> int:
        """A new variable 0..upper."""
        self.upper.append(upper)
        return len(self.upper) - 1

    def at_most(self, terms: Iterable[tuple[int, int]], high: int, tag: Tag | None = None) -> None:
        """sum(terms) <= high."""
        self.rows.append(Row(tuple(terms), None, high, tag))

    def at_least(self, terms: Iterable[tuple[int, int]], low: int, tag: Tag | None = None) -> None:
        """sum(terms) >= low."""
        self.rows.append(Row(tuple(terms), low, None, tag))

    def equal(self, terms: Iterable[tuple[int, int]], value: int, tag: Tag | None = None) -> None:
        """sum(terms) = value."""
        self.rows.append(Row(tuple(terms), value, value, tag))
