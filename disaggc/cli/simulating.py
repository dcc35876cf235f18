"""What `simulate` does: resolve, lay out each mode, offer each load, run. Prints nothing; findings go in the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from disaggc.cli.compiling import compiled
from disaggc.cli.fronts import front_for, planned_front
from disaggc.cli.loads import (
    Bench,
    Fault,
    Offer,
    Sweep,
    bench_offer,
    endless,
    spec_offer,
    struck,
    trace_offer,
    varied,
)
from disaggc.cli.modes import RATIO, Modes, Named, planned
from disaggc.cli.progress import Bar
from disaggc.cli.runs import Simulated
from disaggc.cli.trace_files import Recording, read_trace_file
from disaggc.compilation import Compiled, Request
from disaggc.diagnostics import Diagnostic, error, has_errors, warning
from disaggc.diagnostics.render import Report
from disaggc.ir.plan import ServicePlan
from disaggc.perf.constants import Corner, carried_from
from disaggc.perf.estimate import weakest
from disaggc.perf.events import Front, Run, simulate
from disaggc.perf.layout import Layout
from disaggc.perf.models import Models
from disaggc.pipeline import check
from disaggc.resolve.model import ResolvedService
from disaggc.units import format_duration

_SOONER = "ask for a higher rate or fewer `--requests`; times of a trace are seconds"


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for. modes: plan, colocated, xPyD."""

    files: tuple[Path, ...]
    sets: tuple[str, ...]
    trace: Path | None
    bench: Bench | None
    modes: tuple[str, ...]
    sweep: Sweep | None
    service: str | None
    requests: int | None
    ranged: bool
    seed: int
    admission: bool
    faults: tuple[Fault, ...]


@dataclass(frozen=True, slots=True)
class _Task:
    service: ResolvedService
    named: Named
    offer: Offer
    front: Front


def simulated(wish: Wish, bar: Bar) -> tuple[tuple[Simulated, ...], Report]:
    """Every run that was asked for, or none and why."""
    request = Request(wish.files, wish.sets)
    checked = check(request)
    report = checked.report
    if checked.resolved is None or has_errors(report.diagnostics):
        return (), report
    models = Models.of(checked.resolved)
    report = _with(report, models.diagnostics)
    recording: Recording | None = None
    if wish.trace is not None:
        read, texts = read_trace_file(wish.trace, wish.requests, wish.seed)
        report = _with(report, read.diagnostics, texts)
        recording = read.value
    if models.value is None or has_errors(report.diagnostics):
        return (), report
    chosen = [s for s in checked.resolved.services if wish.service in (None, s.name)]
    if not chosen:
        return (), _with(report, (_unknown_service(wish, checked.resolved.services),))
    plan: Compiled | None = None
    if "plan" in wish.modes and (wish.sweep is None or wish.sweep.of != "ratio"):
        plan = compiled(request, bar, upgrade=False)
        if plan.plan is None:
            return (), plan.report
    runs = _Runs(wish, models.value, plan, recording=recording)
    tasks, problems = runs.tasks(chosen)
    report = _with(report, problems)
    if has_errors(report.diagnostics):
        return (), report
    done = tuple(runs.run(tasks, bar))
    impossible = [
        error("DGC550", f"`--mode {d.mode}` of `{d.service}`: {why}") for d in done for why in d.run.reasons
    ]
    able = tuple(d for d in done if not d.run.reasons)
    return able, _with(report, (*impossible, *_unstruck(able, wish.faults)))


def _unstruck(done: tuple[Simulated, ...], faults: tuple[Fault, ...]) -> Iterator[Diagnostic]:
    """Failures that a run ended before: its figures are those of a run without them, and do not show it."""
    for fault in faults:
        early = [d for d in done if d.run.whole.to_s < fault.at_s]
        if early:
            more = f", and so in {len(early) - 1} more of {len(done)} runs" if len(early) > 1 else ""
            text = (
                f"`--fail {fault}`: nothing fails, as the last answer of `--mode {early[0].mode}` is at "
                f"{format_duration(early[0].run.whole.to_s)}, before {format_duration(fault.at_s)}{more}"
            )
            yield warning("DGC551", text, help="let it fail earlier, or send more with `--requests`")


class _Runs:
    """The runs of one call."""

    def __init__(
        self, wish: Wish, models: Models, plan: Compiled | None, *, recording: Recording | None
    ) -> None:
        self.wish, self.models, self.plan, self.recording = wish, models, plan, recording

    def tasks(self, services: list[ResolvedService]) -> tuple[list[_Task], tuple[Diagnostic, ...]]:
        """Everything to run, or what cannot be."""
        tasks: list[_Task] = []
        problems: list[Diagnostic] = []
        for service in services:
            offer = self._offer(service)
            for named in self._layouts(service, offer.service, len(services)):
                if isinstance(named, Diagnostic):
                    problems.append(named)
                    continue
                for point in self._points(offer):
                    if (why := endless(point)) is not None:
                        problems.append(error("DGC550", f"`--mode {named.name}`: {why}", help=_SOONER))
                        continue
                    hit = struck(point, named.layout, self.wish.faults)
                    if isinstance(hit, Offer):
                        tasks.append(_Task(service, named, hit, self._front(service.name, named, hit)))
                    else:
                        problems.append(
                            error("DGC550", f"`--fail {hit}`: `--mode {named.name}` has no such replica")
                        )
        return tasks, tuple(problems)

    def run(self, tasks: list[_Task], bar: Bar) -> Iterator[Simulated]:
        """One after the other."""
        corners: tuple[Corner, ...] = ("likely", "worst", "best") if self.wish.ranged else ("likely",)
        parts = len(tasks) * len(corners)
        for number, task in enumerate(tasks):
            found: list[Run] = []
            for corner in corners:
                part = bar.part(task.named.name, number * len(corners) + len(found), parts)
                found.append(
                    simulate(
                        self.models, task.offer.service, task.named.layout, load=task.offer.load,
                        seed=self.wish.seed, front=task.front, corner=corner, progress=part,
                    )
                )  # fmt: skip
            known = [
                self.models.constants(task.service, pool.group, pool.shape)
                for pool in task.named.layout.pools
            ]
            yield Simulated(
                task.service.name, task.named.name, task.offer, found[0],
                weakest(*(constants.basis for constants in known)).value, tuple(found[1:]), carried_from(known),
            )  # fmt: skip

    def _offer(self, service: ResolvedService) -> Offer:
        wish = self.wish
        if self.recording is not None:
            return trace_offer(service, self.recording, wish.requests)
        if wish.bench is not None:
            return bench_offer(service, wish.bench, wish.requests)
        return spec_offer(service, wish.requests)

    def _points(self, offer: Offer) -> list[Offer]:
        sweep = self.wish.sweep
        if sweep is None or sweep.of == "ratio":
            return [offer]
        return [varied(offer, sweep, value) for value in sweep.values]

    def _front(self, service: str, named: Named, offer: Offer) -> Front:
        plan = self._service_plan(service) if named.name == "plan" else None
        limited = self.wish.admission
        if plan is not None:
            return planned_front(plan, limited=limited)
        return front_for(self.models, offer, named.layout, limited=limited)

    def _service_plan(self, name: str) -> ServicePlan | None:
        if self.plan is None or self.plan.plan is None:
            return None
        return next(s for s in self.plan.plan.services if s.name == name)

    def _layouts(
        self, service: ResolvedService, sized: ResolvedService, services: int
    ) -> Iterator[Named | Diagnostic]:
        """The layouts of one service; sized: with the classes its memory is sized for."""
        modes = Modes(self.models, sized)
        if self.wish.sweep is not None and self.wish.sweep.of == "ratio":
            yield from modes.every_ratio()
            return
        for mode in self.wish.modes:
            if mode != "plan" and services > 1:
                text = f"`--mode {mode}` lays one service out on the whole cluster, the spec has {services}"
                yield error("DGC550", text, help="name one with `--service`")
                return
            yield self._layout(mode, modes, service.name)

    def _layout(self, mode: str, modes: Modes, service: str) -> Named | Diagnostic:
        ratio = RATIO.fullmatch(mode)
        if ratio:
            found = modes.ratio(int(ratio.group(1)), int(ratio.group(2)))
        elif mode == "colocated":
            found = modes.colocated()
        else:
            plan = self._service_plan(service)
            groups = {group.name: group for group in self.models.resolved.groups}
            found = planned(plan, groups) if plan is not None else "there is no plan"
        if isinstance(found, Layout):
            return Named(mode, found)
        return error("DGC550", f"`--mode {mode}` of `{service}`: {found}", ("services", service))


def _with(report: Report, more: tuple[Diagnostic, ...], texts: Mapping[str, str] | None = None) -> Report:
    """A report with further findings and the texts they point into."""
    return replace(
        report, diagnostics=(*report.diagnostics, *more), sources={**report.sources, **(texts or {})}
    )


def _unknown_service(wish: Wish, services: tuple[ResolvedService, ...]) -> Diagnostic:
    listed = ", ".join(f"`{s.name}`" for s in services)
    return error("DGC550", f"`--service {wish.service}` is not a service of the spec; there is {listed}")
