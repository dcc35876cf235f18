"""A sound plan, made by the compiler itself from the example spec."""

from __future__ import annotations

from functools import cache

from disaggc.ir.plan import DeploymentPlan
from disaggc.perf.models import Models
from disaggc.resolve.model import ResolvedSpec
from disaggc.solve.api import solve_spec
from disaggc.solve.lower import lower
from disaggc.solve.solution import Solution
from tests.rules.marked import findings

ONE_TO_TWO = """
services:
  chat:
    constraints:
      mode: disaggregated
      prefill: {tp: [8], replicas: 1}
      decode: {tp: [8], replicas: 2}
"""


@cache
def sound_plan(overlay: str = ONE_TO_TWO, mode: str | None = None) -> tuple[DeploymentPlan, ResolvedSpec]:
    """The plan of the example spec with the overlay (and mode), and the spec it was made from."""
    found, resolved = findings(overlay, sets=(f"services.chat.constraints.mode={mode}",) if mode else ())
    assert resolved is not None, found
    models = Models.of(resolved).value
    assert models is not None
    solution = solve_spec(models)
    assert isinstance(solution, Solution), solution
    return lower(models, solution), resolved
