"""What goes into a compile and what comes out of its two halves. Runs no stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from disaggc import __version__
from disaggc.diagnostics import Diagnostic
from disaggc.diagnostics.render import Report
from disaggc.ir.changes import Baseline, Change
from disaggc.rules import known_codes, suppressible_errors
from disaggc.spec.load import LoadedSpec, place
from disaggc.spec.suppressions import apply_suppressions

if TYPE_CHECKING:
    from disaggc.emit.artifacts import ArtifactSet
    from disaggc.ir.plan import DeploymentPlan
    from disaggc.resolve.model import ResolvedSpec

History = Callable[[str], Baseline | None]
"""Target -> what was built for it last."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to compile: spec files in overlay order, `--set` arguments, a target that replaces the spec's own.

    files_wanted: a spec that chooses no target is an error.
    """

    files: tuple[Path, ...]
    sets: tuple[str, ...] = ()
    target: str | None = None
    files_wanted: bool = False


@dataclass(frozen=True, slots=True)
class Checked:
    """A spec after every static check. resolved: None where it cannot be planned."""

    loaded: LoadedSpec | None
    resolved: ResolvedSpec | None
    raw: tuple[Diagnostic, ...]
    texts: Mapping[str, str]

    @property
    def report(self) -> Report:
        """The findings, placed, without the suppressed ones."""
        return settled(self, ())


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan with its files and what it changes; plan is None when there are errors or there is no answer."""

    target: str | None
    plan: DeploymentPlan | None
    report: Report
    artifacts: ArtifactSet | None = None
    changes: tuple[Change, ...] = ()
    lock_text: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


def settled(checked: Checked, more: Iterable[Diagnostic]) -> Report:
    """All findings so far, each at its place, without those that a comment in the spec silences."""
    found: tuple[Diagnostic, ...] = (*checked.raw, *more)
    codes = known_codes()
    if checked.loaded is not None:
        found = apply_suppressions(
            place(found, checked.loaded.sources),
            checked.loaded.suppressions,
            codes=codes,
            suppressible_errors=suppressible_errors(),
        )
    names = {code.id: code.name for code in codes}
    return Report(tuple(dict.fromkeys(found)), checked.texts, names, __version__)
