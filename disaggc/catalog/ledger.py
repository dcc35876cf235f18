"""A running sum of parameters and bytes by group; what a model's weights are told in.

Knows groups, shardings and the checkpoint's precision; knows no architecture.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from disaggc.catalog.facts import WeightGroup
from disaggc.catalog.quantisation import Quantisation

Sharding = Literal["tp", "kv", "experts", "replicated"]


@dataclass(slots=True)
class _Row:
    parameters: int = 0
    active: int = 0
    size: float = 0.0


@dataclass(slots=True)
class Ledger:
    """Parameters and bytes by (group, sharding), added up layer by layer."""

    quantisation: Quantisation
    rows: dict[tuple[str, Sharding], _Row] = field(default_factory=dict)

    def add(self, name: str, sharding: Sharding, parameters: int) -> Entry:
        """Begin an addition; `Entry.named` books it."""
        return Entry(self, name, sharding, parameters)

    def weights(self) -> tuple[WeightGroup, ...]:
        """The groups that have parameters, largest first."""
        booked = ((key, row) for key, row in self.rows.items() if row.parameters)
        ordered = sorted(booked, key=lambda pair: (-pair[1].parameters, pair[0]))
        return tuple(
            WeightGroup(k[0], r.parameters, r.active, r.size / r.parameters, k[1]) for k, r in ordered
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One addition to the ledger, booked by `named`."""

    ledger: Ledger
    name: str
    sharding: Sharding
    parameters: int

    def named(self, *modules: str, used: tuple[int, int] = (1, 1)) -> None:
        """`modules`: what the weights are called in ignore lists; used = (n, of): the share one token uses."""
        row = self.ledger.rows.setdefault((self.name, self.sharding), _Row())
        row.parameters += self.parameters
        row.active += self.parameters * used[0] // used[1]
        row.size += self.parameters * self.ledger.quantisation.of(self.name, modules).bytes_each
