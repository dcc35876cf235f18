"""Checked readings of one engine -> its constants: decode, prefill p0, R, q, transfer, mixed steps.

Decode is a + b B + c S or the model's own step at a level: the form stands that predicts runs it has not seen better.
Each is a fit on relative residuals. Batches come from Little's law, never from the cap. Knows no file.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from disaggc.perf.calibration import level_fit
from disaggc.perf.calibration.extras import mixed_constants, transfer_rows
from disaggc.perf.calibration.least_squares import Believed, LinearFit, fit_relative, line_of
from disaggc.perf.calibration.level_fit import LevelFit, fit_level, level_of
from disaggc.perf.calibration.outliers import Predictor, Rows, outliers
from disaggc.perf.calibration.parts import DECODE, LEAST_NOISE, PREFILL, TRANSFER, Part
from disaggc.perf.calibration.prior_step import PriorEngine
from disaggc.perf.calibration.reading import Dropped, Reading
from disaggc.perf.calibration.schedule import BenchRun
from disaggc.perf.constants import Range
from disaggc.units import counted

_MOST_ERROR = 0.5
"""A fit that is off by more on runs it has not seen says less than the priors do."""
_LONG = 16.0
"""Output tokens from which a run says how long a token takes."""


Fitted = Callable[[Rows, Sequence[float]], Predictor]
"""Rows and what was measured -> what a fit to them predicts."""


@dataclass(frozen=True, slots=True)
class Row:
    """A run's name, its row, what was measured, and how far off that is at least."""

    name: str
    features: tuple[float, ...]
    measured: float
    noise: float = LEAST_NOISE


@dataclass(frozen=True, slots=True)
class Wanted:
    """A part to fit. believed: what the priors say of some of its rows."""

    title: str
    names: tuple[str, ...]
    believed: tuple[Believed, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineFit:
    """All parts that the runs allow. runs: all that something comes from."""

    parts: tuple[Part, ...]
    single: Mapping[str, Range]
    """Constants read off directly: kappa, mixed_s."""
    runs: frozenset[str]
    dropped: tuple[Dropped, ...] = field(default=())

    def part(self, title: str) -> Part | None:
        """The part of that title."""
        return next((p for p in self.parts if p.title == title), None)


def fit_engine(
    readings: Sequence[Reading],
    *,
    kv_bytes_per_token: float | None,
    prior: PriorEngine | None = None,
    asked: Sequence[BenchRun] = (),
) -> EngineFit:
    """Everything these runs of one model, accelerator and shape say. asked: what it is to predict."""
    fitting = _Fitting(prior, asked)
    decode = fitting.decode(readings)
    prefill = fitting.prefill(readings)
    moved = None
    if kv_bytes_per_token is not None and prefill is not None:
        found = transfer_rows(readings, prefill, kv_bytes_per_token, dropped=fitting.dropped)
        moved = fitting.linear(Wanted("kv transfer", TRANSFER), [Row(*each) for each in found])
    single: dict[str, Range] = {}
    seen = {run for part in (decode, prefill, moved) if part is not None for run in part.runs}
    if decode is not None:
        single, used = mixed_constants(
            readings,
            lambda batch, context: decode_s(decode, prior, (batch, context)),
            prefill,
            dropped=fitting.dropped,
        )
        seen |= used
    told = {one.name for one in fitting.dropped}
    fitting.dropped += [
        Dropped(r.name, "run not used", "no fit has a use for what it says")
        for r in readings
        if r.name not in seen | told
    ]
    parts = tuple(p for p in (decode, prefill, moved) if p is not None)
    return EngineFit(parts, single, frozenset(seen), tuple(fitting.dropped))


def decode_s(part: Part, prior: PriorEngine | None, at: tuple[float, float]) -> float:
    """The fitted decode step at (batch, context)."""
    batch, context = at
    if isinstance(part.fit, LevelFit):
        return part.fit.at((prior.step_s(batch, context) if prior else math.nan, batch))
    return part.fit.at((1.0, batch, batch * context))


class _Fitting:
    """The fits of one engine, and what they left aside on the way."""

    def __init__(self, prior: PriorEngine | None, asked: Sequence[BenchRun]) -> None:
        self.prior, self.asked = prior, asked
        self.dropped: list[Dropped] = []

    def decode(self, readings: Sequence[Reading]) -> Part | None:
        found: list[tuple[str, float, float, float]] = []
        for r in readings:
            batch, step = r.batch, r.step_s
            known = math.isfinite(step) and step > 0 and math.isfinite(batch)
            if r.setting.kind == "mixed" or r.osl < _LONG or not known:
                continue
            if math.isfinite(r.acceptance):
                self.dropped.append(Dropped(r.name, "token times dropped", "speculative decoding was on"))
                continue
            found.append((r.name, batch, r.isl + r.osl / 2, step))
        straight = [Row(name, (1.0, batch, batch * context), step) for name, batch, context, step in found]
        if self.prior is None or not found:
            return self.linear(Wanted("decode step", DECODE), straight)
        levelled = [
            Row(name, (self.prior.step_s(batch, context), batch), step)
            for name, batch, context, step in found
        ]
        levelled = self._agreeing(
            "decode step", levelled, lambda rows, seen: level_of(rows, seen).at, least=1
        )
        kept = {row.name for row in levelled}
        fit = fit_level([r.features for r in levelled], [r.measured for r in levelled])
        best = _part(Wanted("decode step", level_fit.NAMES), levelled, fit)
        if len(levelled) >= len(DECODE):
            said = [(row.measured, row.features[0]) for row in levelled]
            wanted = Wanted("decode step", DECODE, self._believed("decode", said))
            line = _line(wanted, [r for r in straight if r.name in kept])
            best = line if _unseen(line) < _unseen(best) and line.senseless() is None else best
        return self._trusted(best)

    def prefill(self, readings: Sequence[Reading]) -> Part | None:
        """First tokens at one request at a time, and seconds per prompt where the engine was full of them."""
        found = []
        for r in readings:
            features = (1.0 if r.concurrency == 1 else 0.0, r.isl, r.isl * r.isl)
            if r.concurrency == 1 and math.isfinite(r.ttft_s) and r.setting.kind != "pd":
                found.append(Row(r.name, features, r.ttft_s))
            elif r.concurrency != 1 and r.setting.kind == "prefill" and r.duration_s > 0:
                found.append(Row(r.name, features, r.duration_s / r.completed * (r.setting.replicas or 1)))
        said = [
            (row.measured, self.prior.prompt(row.features[1]).seconds)
            for row in found
            if self.prior is not None and row.features[0]
        ]
        return self.linear(Wanted("prefill", PREFILL, self._believed("prefill", said)), found)

    def linear(self, wanted: Wanted, found: list[Row]) -> Part | None:
        """A fit on as many runs as there are constants, or more."""
        least = len(wanted.names)
        if len(found) < least:
            if found:
                why = f"{counted(len(found), 'run')} cannot determine {least} constants"
                self.dropped.append(Dropped(wanted.title, "not fitted", why))
            return None

        def predictor(rows: Rows, seen: Sequence[float]) -> Predictor:
            return line_of(rows, seen, noise=LEAST_NOISE, believed=wanted.believed).at

        kept = self._agreeing(wanted.title, found, predictor, least=least)
        return self._trusted(_line(wanted, kept))

    def _believed(self, kind: str, seen: Sequence[tuple[float, float]]) -> tuple[Believed, ...]:
        """What the priors say of the schedule's runs of that kind, brought to the level of the runs there are.

        seen: measured times, each beside the prior's. Few runs tell an engine's level, but not its shape.
        """
        if self.prior is None or not seen:
            return ()
        level = statistics.median(measured / said for measured, said in seen)
        out = []
        for run in self.asked:
            if run.kind != kind or (kind == "prefill" and run.concurrency != 1):
                continue
            context = run.isl + run.osl / 2
            guess = (
                self.prior.prompt(run.isl) if kind == "prefill" else self.prior.step(run.concurrency, context)
            )
            out.append(Believed(run.features, level * guess.seconds, guess.deviation))
        return tuple(out)

    def _agreeing(self, title: str, found: list[Row], fitted: Fitted, *, least: int) -> list[Row]:
        """Without the runs that the others contradict."""
        bad = outliers([r.features for r in found], [r.measured for r in found], fitted, least=least)
        for one in bad:
            others = counted(len(found) - len(bad), "run")
            why = f"it is {one.factor:.3g} times what the other {others} say: another unit?"
            self.dropped.append(Dropped(found[one.index].name, f"{title} dropped", why))
        gone = {one.index for one in bad}
        return [row for i, row in enumerate(found) if i not in gone]

    def _trusted(self, part: Part) -> Part | None:
        if (why := part.senseless()) is not None:
            self.dropped.append(Dropped(part.title, "left to the priors", why))
            return None
        if part.unseen_error <= _MOST_ERROR:
            return part
        how = "on its own runs" if part.left_out_error is None else "with each run left out"
        why = f"it would be off by {part.unseen_error:.0%} {how}: the runs contradict each other"
        self.dropped.append(Dropped(part.title, "left to the priors", why))
        return None


def _line(wanted: Wanted, found: Sequence[Row]) -> Part:
    fit = fit_relative(
        [r.features for r in found],
        [r.measured for r in found],
        noise=[r.noise for r in found],
        believed=wanted.believed,
    )
    return _part(wanted, found, fit)


def _part(wanted: Wanted, found: Sequence[Row], fit: LinearFit | LevelFit) -> Part:
    return Part(
        wanted.title,
        wanted.names,
        tuple(r.features for r in found),
        tuple(r.measured for r in found),
        tuple(r.name for r in found),
        fit,
        tuple(b.row for b in wanted.believed),
        tuple(r.noise for r in found),
    )


def _unseen(part: Part) -> float:
    """Error on runs that were not fitted; none of them, none to trust."""
    return math.inf if part.left_out_error is None else part.left_out_error
