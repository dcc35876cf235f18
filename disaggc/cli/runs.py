"""A simulated run with what it was a run of, as the views of `simulate` get it. Knows no format."""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.cli.loads import Offer
from disaggc.ir.plan import Basis, Ratio, Role
from disaggc.perf.events import Run


@dataclass(frozen=True, slots=True)
class Simulated:
    """One run. ends: the same run at the cautious and hopeful ends of the step times; empty where not asked for."""

    service: str
    mode: str
    offer: Offer
    run: Run
    basis: Basis
    ends: tuple[Run, ...] = ()
    carried_from: tuple[str, ...] = ()


def ratio_of(run: Run) -> Ratio | None:
    """XPyD of a run's layout; None where nothing is disaggregated."""
    prefill, decode = run.layout.replicas(Role.PREFILL), run.layout.replicas(Role.DECODE)
    return Ratio(prefill=prefill, decode=decode) if prefill and decode else None
