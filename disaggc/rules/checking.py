"""Runs rules over their subject. A rule that crashes is reported as its own bug and the others still run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from disaggc.diagnostics import Diagnostic, Severity
from disaggc.rules.registry import plan_rules, spec_rules
from disaggc.rules.rule import Finding, Planned, PlanRule, Rule, SpecRule, stamped

if TYPE_CHECKING:
    from disaggc.ir.plan import DeploymentPlan
    from disaggc.resolve.model import ResolvedSpec

S = TypeVar("S")
CRASH = "DGC190"


def check(resolved: ResolvedSpec, rules: Iterable[SpecRule] | None = None) -> tuple[Diagnostic, ...]:
    """Findings about the spec, each at a field path; all spec rules unless given. DGC190 where a rule failed."""
    chosen = spec_rules() if rules is None else tuple(rules)
    return tuple(d for rule in chosen for d in _guarded(rule, rule.check, resolved))


def check_plan(
    plan: DeploymentPlan, resolved: ResolvedSpec | None = None, rules: Iterable[PlanRule] | None = None
) -> tuple[Diagnostic, ...]:
    """Findings about the plan; all plan rules unless given. Without `resolved` what needs facts is not checked.

    Paths are those of the spec that caused the element (a service, mostly). DGC190 where a rule failed.
    """
    chosen = plan_rules() if rules is None else tuple(rules)
    subject = Planned(plan, resolved)
    return tuple(d for rule in chosen for d in _guarded(rule, rule.check, subject))


def _guarded(rule: Rule, run: Callable[[S], Iterator[Finding]], subject: S) -> Iterator[Diagnostic]:
    try:
        yield from (stamped(rule, finding) for finding in run(subject))
    except Exception as problem:  # noqa: BLE001 - a rule's bug must not hide what the other rules find
        yield Diagnostic(
            CRASH,
            Severity.ERROR,
            f"the check {rule.code} ({rule.name}) failed with {type(problem).__name__}: {problem}",
            notes=("this is a bug of that check; every other check ran",),
        )
