"""Applies a plan rule's examples: edits of a plan as data, read back through the plan's own types."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from disaggc.ir.plan import DeploymentPlan
from disaggc.rules.rule import Edit, EditValue

_KEYS = ("name", "flag", "role")


def edited(plan: DeploymentPlan, edits: Iterable[Edit]) -> DeploymentPlan:
    """The plan with the edits made; fails when an edit finds nothing to change."""
    document = plan.model_dump(mode="json")
    for edit in edits:
        _apply(document, edit.at.split("/"), edit.to)
    return DeploymentPlan.model_validate(document)


def _apply(holder: Any, steps: list[str], to: EditValue) -> None:
    step, *rest = steps
    if isinstance(holder, dict):
        if rest:
            _apply(holder[step], rest, to)
        else:
            assert step in holder, step
            holder[step] = to
        return
    found = [i for i, item in enumerate(holder) if step == "*" or step == str(i) or _key(item) == step]
    if rest:
        assert found, step
        for i in found:
            _apply(holder[i], rest, to)
    elif to is None:
        assert found, step
        for i in reversed(found):
            del holder[i]
    else:
        for i in reversed(found):
            del holder[i]
        holder.append({"flag" if step.startswith("-") else "name": step, "value": _literal(to)})


def _key(item: dict[str, Any]) -> str | None:
    return next((item[key] for key in _KEYS if key in item), None)


def _literal(value: EditValue) -> dict[str, str]:
    return {"kind": "literal", "value": str(value)}
