"""Resolved specs from the shipped examples and small changes of them, through the stages that read a spec."""

from __future__ import annotations

from pathlib import Path

from disaggc.catalog.load import load_catalog
from disaggc.ir.plan import DeploymentPlan
from disaggc.perf.models import Models
from disaggc.resolve.api import resolve
from disaggc.resolve.model import ResolvedSpec
from disaggc.solve.api import solve_spec
from disaggc.solve.lower import lower
from disaggc.solve.solution import Infeasible, Solution, Unproven
from disaggc.spec.load import load
from disaggc.spec.lock import Lock

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CATALOG = load_catalog()
FIVE = "deepseek-r1-mi300x"
CLASS = "services.chat.workload.reasoning."
CONSTRAINTS = "services.chat.constraints."
_IMAGES = "{nvidia: 'example.org/a@sha256:%s', amd: 'example.org/b@sha256:%s'}"
TWO_VENDORS = (
    "cluster.nodes.h100.accelerator.type=mi300x",
    "services.assistant.engine.images=" + _IMAGES % ("0" * 64, "1" * 64),
)
"""Changes of the mixed example that put two vendors into its cluster."""


def resolved(example: str, *sets: str, overlay: str | None = None) -> ResolvedSpec:
    files = [EXAMPLES / example / "disaggc.yaml"]
    if overlay is not None:
        files.append(EXAMPLES / example / overlay)
    loaded = load(files, sets=sets)
    assert loaded.value is not None, loaded.diagnostics
    outcome = resolve(loaded.value, CATALOG)
    assert outcome.value is not None, outcome.diagnostics
    return outcome.value


def models(example: str, *sets: str, overlay: str | None = None) -> Models:
    built = Models.of(resolved(example, *sets, overlay=overlay))
    assert built.value is not None, built.diagnostics
    return built.value


def solved(
    example: str, *sets: str, overlay: str | None = None, lock: Lock | None = None
) -> Solution | Infeasible | Unproven:
    return solve_spec(models(example, *sets, overlay=overlay), lock=lock)


def solution(example: str, *sets: str, overlay: str | None = None, lock: Lock | None = None) -> Solution:
    found = solved(example, *sets, overlay=overlay, lock=lock)
    assert isinstance(found, Solution), found.diagnostics
    return found


def plan(example: str, *sets: str, overlay: str | None = None) -> tuple[DeploymentPlan, ResolvedSpec]:
    built = models(example, *sets, overlay=overlay)
    found = solve_spec(built)
    assert isinstance(found, Solution), found.diagnostics
    return lower(built, found), built.resolved
