"""Limits of one decode or colocated replica. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Limits of one replica. seqs, kv_tokens: the whole replica's; budget: tokens of one step of one rank.

    per_step: output tokens a sequence gets in one step. kappa: factor on every decode step.
    """

    seqs: int
    kv_tokens: float
    budget: float
    ranks: int
    per_step: float
    kappa: float
