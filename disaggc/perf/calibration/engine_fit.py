"""Checked readings of one engine -> its constants: decode, prefill p0, R, q, transfer, mixed steps.

Decode is a + b B + c S or the model's own step at a level: the form stands that predicts runs it has not seen better.
Each is a fit on relative residuals. Batches come from Little's law, never from the cap. Knows no file.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from disaggc.perf.calibration import level_fit
from disaggc.perf.calibration.geometry import Geometry, geometry_of
from disaggc.perf.calibration.least_squares import LinearFit, fit_relative
from disaggc.perf.calibration.level_fit import LevelFit, fit_level
from disaggc.perf.calibration.reading import Dropped, Reading
from disaggc.perf.constants import Range

_Z90 = 1.2815515594457831
_CERTAIN = 0.5
"""Relative standard error up to which a constant counts as pinned down."""
_WIDEST = 3.0
_LONG = 16.0
"""Output tokens from which a run says how long a token takes."""
Row = tuple[str, tuple[float, ...], float]
"""A run's name, its row and what was measured."""
DECODE = ("decode_fixed_s", "decode_per_sequence_s", "decode_per_token_s")
PREFILL = ("prefill_s", "prefill_per_token_s", "prefill_per_square_s")
TRANSFER = ("kv_setup_s", "kv_byte_s")


@dataclass(frozen=True, slots=True)
class Part:
    """One fit. names: the constants of its columns. runs: what it was fitted on."""

    title: str
    names: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    measured: tuple[float, ...]
    runs: tuple[str, ...]
    fit: LinearFit | LevelFit

    @property
    def error(self) -> float:
        """Mean absolute relative error on the runs it was fitted on."""
        return statistics.fmean(abs(e) for e in self.fit.errors)

    @property
    def left_out_error(self) -> float | None:
        """The same with each run left out in turn; None where there are too few."""
        return statistics.fmean(abs(e) for e in self.fit.left_out) if self.fit.left_out else None

    @property
    def loose(self) -> tuple[str, ...]:
        """Constants that these runs do not pin down."""
        return tuple(n for n, d in zip(self.names, self.fit.deviations, strict=True) if not d <= _CERTAIN)

    def geometry(self) -> Geometry | None:
        """How well the runs tell the constants apart; None for a level, which is held back by what was believed."""
        return geometry_of(self.names, self.rows, self.measured) if isinstance(self.fit, LinearFit) else None

    def ranges(self) -> dict[str, Range]:
        """The constants with their 80 % ranges."""
        if isinstance(self.fit, LevelFit):
            return self.fit.ranges()
        out = {}
        for name, value, doubt in zip(self.names, self.fit.coefficients, self.fit.deviations, strict=True):
            width = math.exp(_Z90 * min(doubt, _WIDEST / _Z90)) if value > 0 else 1.0
            out[name] = Range(value / width, value, value * width)
        return out


@dataclass(frozen=True, slots=True)
class EngineFit:
    """All parts that the runs allow."""

    parts: tuple[Part, ...]
    single: dict[str, float]
    """Constants read off directly: kappa, mixed_s."""
    dropped: tuple[Dropped, ...] = field(default=())

    def part(self, title: str) -> Part | None:
        """The part of that title."""
        return next((p for p in self.parts if p.title == title), None)


StepModel = Callable[[float, float], float]
"""(batch of one replica, context of one sequence) -> seconds of a decode step at the priors."""


def fit_engine(
    readings: Sequence[Reading], *, kv_bytes_per_token: float | None, model: StepModel | None = None
) -> EngineFit:
    """Everything these runs of one model, accelerator and shape say."""
    dropped: list[Dropped] = []
    decode = _decode(readings, model, dropped)
    prefill = _prefill(readings, dropped)
    parts = [p for p in (decode, prefill) if p is not None]
    if kv_bytes_per_token is not None and prefill is not None:
        moved = _transfer(readings, prefill, kv_bytes_per_token)
        parts += [] if moved is None else [moved]
    single = {} if decode is None else _mixed(readings, (decode, model), prefill)
    return EngineFit(tuple(parts), single, tuple(dropped))


def _part(title: str, names: tuple[str, ...], found: list[Row]) -> Part:
    runs, rows, measured = (tuple(column) for column in zip(*found, strict=True))
    fitted = fit_level(rows, measured) if names == level_fit.NAMES else fit_relative(rows, measured)
    return Part(title, names, rows, measured, runs, fitted)


def _too_few(title: str, names: tuple[str, ...], found: list[Row]) -> list[Dropped]:
    """Why a part is not fitted although there are runs for it."""
    if not found or len(found) >= len(names):
        return []
    return [Dropped(title, "not fitted", f"{len(found)} runs cannot determine {len(names)} constants")]


def batch_of(reading: Reading) -> float:
    """Sequences that run in one replica."""
    return reading.running / (reading.setting.replicas or 1)


def step_of(reading: Reading) -> float:
    """Seconds of one decode step without prompts in it, where the run tells them apart."""
    alone = reading.setting.kind == "pd"
    return reading.tpot_s if alone or not math.isfinite(reading.itl_s) else reading.itl_s


def _decode(readings: Sequence[Reading], model: StepModel | None, dropped: list[Dropped]) -> Part | None:
    found: list[tuple[str, float, float, float]] = []
    for r in readings:
        batch, step = batch_of(r), step_of(r)
        known = math.isfinite(step) and step > 0 and math.isfinite(batch)
        if r.setting.kind == "mixed" or r.osl < _LONG or not known:
            continue
        if math.isfinite(r.acceptance):
            dropped.append(Dropped(r.name, "token times dropped", "speculative decoding was on"))
            continue
        found.append((r.name, batch, r.isl + r.osl / 2, step))
    straight: list[Row] = [
        (name, (1.0, batch, batch * context), step) for name, batch, context, step in found
    ]
    line = _part("decode step", DECODE, straight) if len(straight) >= len(DECODE) else None
    if model is None or not found:
        dropped += _too_few("decode step", DECODE, straight)
        return line
    levelled: list[Row] = [
        (name, (model(batch, context), batch), step) for name, batch, context, step in found
    ]
    level = _part("decode step", level_fit.NAMES, levelled)
    return line if line is not None and _unseen(line) < _unseen(level) else level


def _unseen(part: Part) -> float:
    """Error on runs that were not fitted; none of them, none to trust."""
    return math.inf if part.left_out_error is None else part.left_out_error


def decode_s(part: Part, model: StepModel | None, at: tuple[float, float]) -> float:
    """The fitted decode step at (batch, context)."""
    batch, context = at
    if isinstance(part.fit, LevelFit):
        return part.fit.at((model(batch, context) if model else math.nan, batch))
    return part.fit.at((1.0, batch, batch * context))


def _prefill(readings: Sequence[Reading], dropped: list[Dropped]) -> Part | None:
    """First tokens at one request at a time, and seconds per prompt where the engine was full of them."""
    found: list[Row] = []
    for r in readings:
        if r.concurrency == 1 and math.isfinite(r.ttft_s) and r.setting.kind != "pd":
            found.append((r.name, (1.0, r.isl, r.isl * r.isl), r.ttft_s))
        elif r.setting.kind == "prefill" and r.duration_s > 0:
            each = r.duration_s / r.completed * (r.setting.replicas or 1)
            found.append((r.name, (0.0, r.isl, r.isl * r.isl), each))
    dropped += _too_few("prefill", PREFILL, found)
    return _part("prefill", PREFILL, found) if len(found) >= len(PREFILL) else None


def _transfer(readings: Sequence[Reading], prefill: Part, kv_bytes_per_token: float) -> Part | None:
    """What a first token over prefill and decode takes beyond the prompt itself."""
    found: list[Row] = []
    for r in readings:
        if r.setting.kind == "pd" and r.concurrency == 1 and math.isfinite(r.ttft_s):
            beyond = r.ttft_s - prefill.fit.at((1.0, r.isl, r.isl * r.isl))
            if beyond > 0:
                found.append((r.name, (1.0, r.isl * kv_bytes_per_token), beyond))
    return _part("kv transfer", TRANSFER, found) if len(found) >= len(TRANSFER) else None


def _mixed(
    readings: Sequence[Reading], decode: tuple[Part, StepModel | None], prefill: Part | None
) -> dict[str, float]:
    """kappa: decode steps of a colocated engine over those predicted; mixed_s: what a prompt's step adds besides."""
    kappas, extras = [], []
    for r in readings:
        if r.setting.kind != "mixed" or not math.isfinite(r.itl_s):
            continue
        step = decode_s(*decode, (batch_of(r), r.isl + r.osl / 2))
        kappas.append(r.itl_s / step)
        if prefill is not None and math.isfinite(r.itl_p99_s):
            extras.append(max(0.0, r.itl_p99_s - r.itl_s - prefill.fit.at((0.0, r.isl, r.isl * r.isl))))
    out = {"kappa": statistics.median(kappas)} if kappas else {}
    return out | ({"mixed_s": statistics.median(extras)} if extras else {})
