"""Emits a hand-written plan for a target and hands out the files by name."""

from __future__ import annotations

from typing import Any

import yaml

from disaggc.diagnostics.model import Diagnostic
from disaggc.emit.api import TargetChoice, TargetSettings, emit
from disaggc.emit.artifacts import Artifact
from disaggc.ir.plan import DeploymentPlan


def parsed(text: str) -> Any:
    """The one YAML document of a file, by libyaml where PyYAML has it."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe


def files(plan: DeploymentPlan, settings: TargetSettings) -> dict[str, Artifact]:
    """Artifacts by path; the plan must fit the target."""
    outcome = emit(plan, TargetChoice(settings))
    assert outcome.value is not None, outcome.diagnostics
    return {artifact.path: artifact for artifact in outcome.value.artifacts}


def findings(plan: DeploymentPlan, settings: TargetSettings) -> tuple[Diagnostic, ...]:
    return emit(plan, TargetChoice(settings)).diagnostics


def codes(plan: DeploymentPlan, settings: TargetSettings) -> list[str]:
    return [d.code for d in findings(plan, settings)]
