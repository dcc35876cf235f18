"""Checked readings of one engine -> its direct constants: decode a, b, c; prefill p0, R, q; transfer; mixed steps.

Each is a non-negative fit on relative residuals. Batches come from Little's law, never from the cap. Knows no file.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from disaggc.perf.calibration.least_squares import LinearFit, fit_relative
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
    fit: LinearFit

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

    def ranges(self) -> dict[str, Range]:
        """The constants with their 80 % ranges."""
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


def fit_engine(readings: Sequence[Reading], *, kv_bytes_per_token: float | None) -> EngineFit:
    """Everything these runs of one model, accelerator and shape say."""
    dropped: list[Dropped] = []
    decode = _decode(readings, dropped)
    prefill = _prefill(readings, dropped)
    parts = [p for p in (decode, prefill) if p is not None]
    if kv_bytes_per_token is not None and prefill is not None:
        moved = _transfer(readings, prefill, kv_bytes_per_token)
        parts += [] if moved is None else [moved]
    return EngineFit(tuple(parts), _mixed(readings, decode, prefill), tuple(dropped))


def _part(title: str, names: tuple[str, ...], found: list[Row]) -> Part:
    runs, rows, measured = (tuple(column) for column in zip(*found, strict=True))
    return Part(title, names, rows, measured, runs, fit_relative(rows, measured))


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


def _decode(readings: Sequence[Reading], dropped: list[Dropped]) -> Part | None:
    found: list[Row] = []
    for r in readings:
        batch, step = batch_of(r), step_of(r)
        known = math.isfinite(step) and step > 0 and math.isfinite(batch)
        if r.setting.kind == "mixed" or r.osl < _LONG or not known:
            continue
        if math.isfinite(r.acceptance):
            dropped.append(Dropped(r.name, "token times dropped", "speculative decoding was on"))
            continue
        found.append((r.name, (1.0, batch, batch * (r.isl + r.osl / 2)), step))
    dropped += _too_few("decode step", DECODE, found)
    return _part("decode step", DECODE, found) if len(found) >= len(DECODE) else None


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


def _mixed(readings: Sequence[Reading], decode: Part | None, prefill: Part | None) -> dict[str, float]:
    """kappa: decode steps of a colocated engine over those predicted; mixed_s: what a prompt's step adds besides."""
    if decode is None:
        return {}
    kappas, extras = [], []
    for r in readings:
        if r.setting.kind != "mixed" or not math.isfinite(r.itl_s):
            continue
        batch = batch_of(r)
        step = decode.fit.at((1.0, batch, batch * (r.isl + r.osl / 2)))
        kappas.append(r.itl_s / step)
        if prefill is not None and math.isfinite(r.itl_p99_s):
            extras.append(max(0.0, r.itl_p99_s - r.itl_s - prefill.fit.at((0.0, r.isl, r.isl * r.isl))))
    out = {"kappa": statistics.median(kappas)} if kappas else {}
    return out | ({"mixed_s": statistics.median(extras)} if extras else {})
