"""Plans as bytes: one spelling per plan, a fingerprint of what should exist, and reading saved files.

Knows no stage that makes plans. Numbers are written with nine significant digits: far finer than any prediction,
coarser than the last bits in which two machines' arithmetic may differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from pydantic import ValidationError

from disaggc.ir.plan import DeploymentPlan
from disaggc.ir.wording import faults

SAVED_PLAN = "disaggc.saved-plan/v1"
"""Name of the file format written by `disaggc plan --out`."""

_DIGITS = 9


class UnreadablePlanError(ValueError):
    """The bytes are not a plan this version of disaggc can use; the message says why."""


def canonical_json(document: object) -> str:
    """Sorted keys, two spaces, ASCII only, numbers as described above, one newline at the end."""
    return json.dumps(_settled(document), sort_keys=True, indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def fingerprint(plan: DeploymentPlan) -> str:
    """`sha256:<64 hex>` over everything but how the answer was found (`solver`)."""
    return _fingerprint(plan.model_dump(mode="json"))


def _fingerprint(body: Mapping[str, object]) -> str:
    return digest(canonical_json({name: part for name, part in body.items() if name != "solver"}))


def digest(text: str) -> str:
    """`sha256:<64 hex>` of a text."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def saved_plan_text(plan: DeploymentPlan, target: str | None) -> str:
    """The plan as a file: format name, fingerprint, target, plan."""
    return canonical_json(
        {
            "schema": SAVED_PLAN,
            "fingerprint": fingerprint(plan),
            "target": target,
            "plan": plan.model_dump(mode="json"),
        }
    )


def read_saved_plan(text: str) -> DeploymentPlan:
    """The plan in a file written by `saved_plan_text`, checked against its own fingerprint.

    What is checked is what the file holds: a field that plans have only since then is not in it, and gets its default.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UnreadablePlanError(f"not JSON: {problem}") from None
    if not isinstance(document, dict) or document.get("schema") != SAVED_PLAN:
        raise UnreadablePlanError(f"not a saved plan: `schema` is not `{SAVED_PLAN}`")
    body = document.get("plan")
    if not isinstance(body, dict):
        raise UnreadablePlanError("the saved plan has no `plan`")
    try:
        plan = DeploymentPlan.model_validate_json(json.dumps(body))
    except ValidationError as problem:
        raise UnreadablePlanError(faults(problem, "plan", under="plan.")[0]) from None
    if _fingerprint(body) != document.get("fingerprint"):
        raise UnreadablePlanError("the plan was changed after it was saved: its fingerprint does not match")
    return plan


def _settled(value: object) -> object:
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return _settled_float(value)
        case Mapping():
            return {str(key): _settled(item) for key, item in value.items()}
        case list() | tuple():
            return [_settled(item) for item in value]
        case set() | frozenset():
            return sorted((_settled(item) for item in value), key=repr)
        case _:
            raise TypeError(f"{type(value).__name__} has no canonical form")


def _settled_float(value: float) -> float | int:
    if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - NaN is the value unequal to itself
        raise ValueError("a plan holds finite numbers only")
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 10**_DIGITS else rounded
