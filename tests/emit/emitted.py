"""Emits a hand-written plan for a target and hands out the files by name."""

from __future__ import annotations

from disaggc.diagnostics.model import Diagnostic
from disaggc.emit.api import TargetChoice, TargetSettings, emit
from disaggc.emit.artifacts import Artifact
from disaggc.ir.plan import DeploymentPlan


def files(plan: DeploymentPlan, settings: TargetSettings) -> dict[str, Artifact]:
    """Artifacts by path; the plan must fit the target."""
    outcome = emit(plan, TargetChoice(settings))
    assert outcome.value is not None, outcome.diagnostics
    return {artifact.path: artifact for artifact in outcome.value.artifacts}


def findings(plan: DeploymentPlan, settings: TargetSettings) -> tuple[Diagnostic, ...]:
    return emit(plan, TargetChoice(settings)).diagnostics


def codes(plan: DeploymentPlan, settings: TargetSettings) -> list[str]:
    return [d.code for d in findings(plan, settings)]
