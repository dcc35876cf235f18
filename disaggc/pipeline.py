"""The order of the stages, from spec to plan to change set, for every caller alike. Decides nothing of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from disaggc.catalog.load import Catalog, load_catalog
from disaggc.compilation import Checked, Compiled, History, Request, settled
from disaggc.diagnostics import Diagnostic, Outcome, error, has_errors
from disaggc.ir.changes import Baseline, changes
from disaggc.ir.plan import DeploymentPlan
from disaggc.resolve.api import resolve
from disaggc.rules import check as check_rules
from disaggc.spec.field_digests import field_digests
from disaggc.spec.files import Unreadable, decode, read_file
from disaggc.spec.load import load
from disaggc.spec.lock import Lock, read_lock, write_lock
from disaggc.spec.lock_plan import lock_of, locked_baseline
from disaggc.spec.model import ComposeTarget, KubernetesTarget, LocalTarget, SystemdTarget

if TYPE_CHECKING:
    from disaggc.emit.artifacts import ArtifactSet
    from disaggc.resolve.model import ResolvedSpec

_NO_TARGET = error(
    "DGC601",
    "the spec chooses no target, so there are no files to write",
    ("target",),
    help="write `target: systemd`, `compose`, `kubernetes` or `local`, or give `--target`",
)


def check(request: Request, catalog: Catalog | None = None) -> Checked:
    """Load, resolve and run every rule about the spec; imports no solver."""
    texts: dict[str, str] = {}

    def remembered(path: Path, limit: int) -> bytes | Unreadable:
        content = read_file(path, limit)
        if isinstance(content, bytes) and isinstance(text := decode(content), str):
            texts[str(path)] = text
        return content

    sets = (*request.sets, f"target={request.target}") if request.target else request.sets
    texts["--set"] = "\n".join(sets)
    loaded = load(request.files, sets=sets, read=remembered)
    if loaded.value is None:
        return Checked(None, None, loaded.diagnostics, texts)
    outcome = resolve(loaded.value, catalog or load_catalog())
    found = [*loaded.diagnostics, *outcome.diagnostics]
    if outcome.value is not None:
        found += [*_calibrated(outcome.value, texts), *check_rules(outcome.value)]
    return Checked(loaded.value, outcome.value, tuple(found), texts)


def _calibrated(resolved: ResolvedSpec, texts: dict[str, str]) -> tuple[Diagnostic, ...]:
    """What is wrong with the calibration file: a spec whose predictions cannot be made is not valid."""
    from disaggc.perf.calibration_file import read_calibration

    source = resolved.calibration
    if source is None:
        return ()
    texts[source.path] = source.text
    return read_calibration(source).diagnostics


def compile_plan(
    request: Request, *, lock: Path | None, history: History, catalog: Catalog | None = None
) -> Compiled:
    """Check, then solve, lower, verify, emit and compare with what `history` says was built for the target.

    lock: disaggc.lock to keep to, None to solve anew. The report says what stands against a plan where there is none.
    """
    checked = check(request, catalog)
    target = checked.resolved.target if checked.resolved is not None else None
    if checked.resolved is None or has_errors(checked.report.diagnostics):
        return Compiled(target, None, checked.report)
    if target is None and request.files_wanted:
        return Compiled(None, None, settled(checked, (_NO_TARGET,)))
    kept: Outcome[Lock] = read_lock(lock) if lock is not None else Outcome(None)
    if kept.diagnostics:
        return Compiled(target, None, settled(checked, kept.diagnostics))
    solved = _solved(checked.resolved, kept.value)
    plan = solved.value
    if plan is None or solved.failed:
        return Compiled(target, None, settled(checked, solved.diagnostics))
    emitted = _emitted(plan, checked.resolved)
    report = settled(checked, (*solved.diagnostics, *emitted.diagnostics))
    if emitted.failed and target is not None:
        return Compiled(target, None, report)
    fields = field_digests(checked.resolved.spec)
    built = history(target) if target is not None else None
    if built is None:
        built = locked_baseline(kept.value, plan) if kept.value is not None else Baseline({}, {}, None)
    return Compiled(
        target=target,
        plan=plan,
        artifacts=emitted.value,
        changes=changes(built, plan, fields),
        report=report,
        lock_text=write_lock(lock_of(plan)),
        fields=fields,
    )


def _solved(resolved: ResolvedSpec, lock: Lock | None) -> Outcome[DeploymentPlan]:
    """The plan that solver and verifier agree on. The solver is imported here: checks must not wait for it."""
    from disaggc.perf.calibration_use import unused_by_plan
    from disaggc.perf.models import Models
    from disaggc.solve.api import solve_spec
    from disaggc.solve.lower import lower
    from disaggc.solve.solution import Infeasible, Solution, Unproven
    from disaggc.verify.api import verify

    models = Models.of(resolved)
    if models.value is None or models.failed:
        return Outcome(None, models.diagnostics)
    match solve_spec(models.value, lock=lock):
        case Infeasible() | Unproven() as none:
            return Outcome(None, (*models.diagnostics, *none.diagnostics))
        case Solution() as solution:
            plan, known = lower(models.value, solution), models.value.calibration
            unused = () if known is None else unused_by_plan(known, resolved, plan)
            return Outcome(
                plan, (*models.diagnostics, *solution.diagnostics, *unused, *verify(plan, resolved))
            )
        case other:
            assert_never(other)


def _emitted(plan: DeploymentPlan, resolved: ResolvedSpec) -> Outcome[ArtifactSet]:
    from disaggc.emit.api import TargetChoice, emit

    if resolved.target is None:
        return Outcome(None)
    chosen = getattr(resolved.spec.targets, resolved.target)
    defaults = {
        "kubernetes": KubernetesTarget,
        "systemd": SystemdTarget,
        "compose": ComposeTarget,
        "local": LocalTarget,
    }
    settings = chosen or defaults[resolved.target]()
    timings: Mapping[str, str] = {}
    if isinstance(settings, LocalTarget) and settings.engine == "sim":
        from disaggc.simengine.tables import timing_tables

        timings = timing_tables(plan, resolved)
    return emit(plan, TargetChoice(settings, timings))
