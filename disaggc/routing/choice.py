"""Choosing one replica among those that may serve: pure functions of load, weight and the request's prefix.

Knows no sockets and no clock; randomness is a parameter. The proxy, the simulator and the engine double share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from disaggc.routing.table import Policy

SPILL: Final = 1.25
"""Affinity holds until a replica has this factor of the mean work; beyond it a cache hit costs more than it saves."""


class Candidate(Protocol):
    """What a choice may look at."""

    @property
    def address(self) -> str:
        """Identity, stable over restarts."""

    @property
    def weight(self) -> float:
        """Relative speed, above 0."""

    @property
    def work(self) -> float:
        """Outstanding tokens."""


C = TypeVar("C", bound=Candidate)


@dataclass
class Chooser:
    """One policy with the little memory it needs; `random` gives uniform numbers in [0, 1)."""

    policy: Policy
    random: Callable[[], float]
    turn: int = 0
    several: bool = False
    """Whether other proxies choose too: the load seen is stale then, and all would run to the same least one."""

    def choose(self, candidates: Sequence[C], prefix: bytes = b"") -> C | None:
        """The replica to use, None when there is none. `prefix` is the affinity key, empty = no affinity."""
        if len(candidates) < 2:
            return candidates[0] if candidates else None
        match self.policy:
            case Policy.ROUND_ROBIN:
                self.turn += 1
                return candidates[self.turn % len(candidates)]
            case Policy.POWER_OF_TWO:
                return power_of_two(candidates, self.random)
            case Policy.PREFIX_AFFINITY if prefix:
                return affine(candidates, prefix)
            case _ if self.several:
                return power_of_two(candidates, self.random)
            case _:
                self.turn += 1
                return least_work(candidates, self.turn)


def least_work(candidates: Sequence[C], turn: int = 0) -> C:
    """The least outstanding tokens for its weight; equals take turns, so that idle replicas share."""
    size = len(candidates)
    best = candidates[turn % size]
    least = best.work / best.weight
    for step in range(1, size):
        other = candidates[(turn + step) % size]
        load = other.work / other.weight
        if load < least:
            best, least = other, load
    return best


def power_of_two(candidates: Sequence[C], random: Callable[[], float]) -> C:
    """The better of two different ones drawn at random: stays even when several proxies see stale load."""
    size = len(candidates)
    first = int(random() * size)
    second = (first + 1 + int(random() * (size - 1))) % size
    one, two = candidates[first], candidates[second]
    return one if one.work / one.weight <= two.work / two.weight else two


def affine(candidates: Sequence[C], prefix: bytes) -> C:
    """The replica the prefix belongs to by rendezvous hashing, unless it is overloaded: then its next owner.

    A replica that leaves or joins moves only the prefixes it owns.
    """
    # Sums of fractions start with one: compiled, a sum that starts with a whole number takes nothing else.
    mean = sum((c.work for c in candidates), 0.0) / sum((c.weight for c in candidates), 0.0)
    ranked = sorted(candidates, key=lambda c: _rank(c, prefix), reverse=True)
    for candidate in ranked:
        if candidate.work / candidate.weight <= mean * SPILL:
            return candidate
    return ranked[0]


def _rank(candidate: Candidate, prefix: bytes) -> int:
    digest = hashlib.blake2b(candidate.address.encode(), digest_size=8, key=prefix[:64]).digest()
    return int.from_bytes(digest, "big")
