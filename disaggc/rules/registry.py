"""Finds the rules: one module per code in the area folders, imported only when it is wanted. Knows no rule by name."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import cast

from disaggc.diagnostics import Code
from disaggc.rules.rule import PlanRule, Rule, SpecRule

SPEC_AREAS = ("names", "memory", "transfer", "objectives", "targets", "frontend")
"""Folders with rules about what a user can write."""
PLAN_AREAS = ("invariants",)
"""Folders with rules about what the compiler writes."""


def spec_rules() -> tuple[SpecRule, ...]:
    """Every rule whose subject is a resolved spec, by code."""
    return cast("tuple[SpecRule, ...]", _loaded(SPEC_AREAS))


def plan_rules() -> tuple[PlanRule, ...]:
    """Every rule whose subject is a deployment plan, by code."""
    return cast("tuple[PlanRule, ...]", _loaded(PLAN_AREAS))


def rule_codes() -> tuple[Code, ...]:
    """Code and name of every rule, read off the file names: nothing is imported. The page is the rule's own."""
    modules = _modules(SPEC_AREAS + PLAN_AREAS)
    parts = (stem.partition("_") for stem, _ in modules)
    return tuple(Code(number.upper(), name.replace("_", "-"), "") for number, _, name in parts)


def suppressible_errors() -> frozenset[str]:
    """Codes of spec rules whose errors a comment in the spec may silence."""
    return frozenset(rule.code for rule in spec_rules() if rule.suppressible)


def rule_for(code: str) -> Rule | None:
    """The rule with this code or kebab-case name; imports just its module. None when no rule has it."""
    wanted = code.lower()
    for stem, module in _modules(SPEC_AREAS + PLAN_AREAS):
        number, _, name = stem.partition("_")
        if wanted in (number, name.replace("_", "-")):
            return _rule(module)
    return None


def _loaded(areas: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(_rule(module) for _, module in _modules(areas))


@cache
def _modules(areas: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    root = Path(__file__).parent
    found = {
        (path.stem, f"{__package__}.{area}.{path.stem}")
        for area in areas
        for path in (root / area).glob("dgc*.py")
    }
    return tuple(sorted(found))


def _rule(module: str) -> Rule:
    return cast("Rule", import_module(module).RULE)
