"""What a rule is: a code, a check and the examples that prove it. Knows no files, no positions and no registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disaggc.diagnostics import Diagnostic, FieldPath, Label, Severity

if TYPE_CHECKING:
    from disaggc.ir.plan import DeploymentPlan
    from disaggc.resolve.model import ResolvedSpec

EditValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check saw, without code and position: the rule stamps the code, the source map finds the place.

    path: field of the spec, or of the plan for a plan rule. at_key: point at the key, not at its value.
    severity: only where one rule has a milder form; None means the rule's own.
    """

    message: str
    path: FieldPath
    help: str | None = None
    notes: tuple[str, ...] = ()
    labels: tuple[Label, ...] = ()
    at_key: bool = False
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with the spec it was made from; resolved is None for a plan read back from a file on its own."""

    plan: DeploymentPlan
    resolved: ResolvedSpec | None = None


SpecCheck = Callable[["ResolvedSpec"], Iterator[Finding]]
PlanCheck = Callable[[Planned], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class SpecRule:
    """A check of what a user wrote. fails and passes are YAML overlays on the example spec (`rules.example`).

    In a failing example a comment line under the offending one points up with `^ CODE` at the column of the finding.
    sources: where the fact comes from. suppressible: whether `# disaggc: ignore[...]` may silence it.
    """

    code: str
    name: str
    severity: Severity
    check: SpecCheck
    sources: tuple[str, ...]
    fails: tuple[str, ...]
    passes: tuple[str, ...]
    suppressible: bool = True


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a plan, as data. at: path with `/`; lists are entered by index, name, flag, role or address.

    to: the new value; None removes a list element. For `arguments/--flag` and `env/NAME` a scalar is the literal value.
    """

    at: str
    to: EditValue


@dataclass(frozen=True, slots=True)
class PlanRule:
    """An invariant of what the compiler writes. Every example in fails is a set of edits that breaks a sound plan."""

    code: str
    name: str
    severity: Severity
    check: PlanCheck
    sources: tuple[str, ...]
    fails: tuple[tuple[Edit, ...], ...]
    passes: tuple[tuple[Edit, ...], ...] = ((),)
    suppressible: bool = False


Rule = SpecRule | PlanRule


_NOT_THE_SPEC = "a spec cannot cause this: the plan was edited, or the compiler has a fault"


def stamped(rule: Rule, finding: Finding) -> Diagnostic:
    """The finding as a diagnostic of this rule.

    One about a plan says that the spec is not to blame, unless it says what to write there.
    """
    blameless = isinstance(rule, PlanRule) and finding.help is None
    notes = (*finding.notes, _NOT_THE_SPEC) if blameless else finding.notes
    return Diagnostic(
        rule.code,
        finding.severity or rule.severity,
        finding.message,
        finding.path,
        labels=finding.labels,
        notes=notes,
        help=finding.help,
        at_key=finding.at_key,
    )
