"""The shortest bench schedule that pins an engine down, as commands; and which of its runs would help most. No I/O."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disaggc.perf.calibration.engine_fit import EngineFit, Part
from disaggc.perf.calibration.level_fit import LevelFit
from disaggc.perf.calibration.reading import RunKind

if TYPE_CHECKING:
    from disaggc.perf.calibration.least_squares import Matrix, Vector

_LEAST_NOISE = 0.03
"""Two equal runs differ by that much."""


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One run of the schedule."""

    kind: RunKind
    isl: int
    osl: int
    concurrency: int

    @property
    def prompts(self) -> int:
        """Requests: five waves, so that the first can be dropped, at least eight."""
        return max(8, 5 * self.concurrency)

    @property
    def features(self) -> tuple[float, ...]:
        """The row it would add to its fit."""
        if self.kind == "prefill":
            return (1.0 if self.concurrency == 1 else 0.0, float(self.isl), float(self.isl) ** 2)
        return (1.0, float(self.concurrency), self.concurrency * (self.isl + self.osl / 2))

    def command(self, model: str, metadata: Sequence[tuple[str, str]]) -> str:
        """The command line, for a shell."""
        pairs = [f"{key}={value}" for key, value in (("disaggc_run", self.kind), *metadata)]
        words = [
            "vllm", "bench", "serve", "--model", model, "--dataset-name", "random",
            "--random-input-len", str(self.isl), "--random-output-len", str(self.osl), "--ignore-eos",
            "--max-concurrency", str(self.concurrency), "--num-prompts", str(self.prompts), "--seed", str(self.isl),
            "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed",
            "--result-filename", f"{self.kind}-{self.isl}-{self.osl}-c{self.concurrency}.json", "--metadata", *pairs,
        ]  # fmt: skip
        return shlex.join(words)


def schedule(longest: int, sequences: int) -> tuple[BenchRun, ...]:
    """Thirteen short runs within a model length and a sequence limit: five decode, four prefill, two mixed, two P/D."""
    top = max(2, min(256, sequences))
    far = max(256, min(8192, longest - 512))
    middle = min(2048, far)
    decode = ((128, 1), (128, top), (middle, max(2, top // 4)), (far, 8), (far, max(9, top // 4)))
    prefill = ((512, 1), (middle, 1), (max(far, min(32768, longest - 8)), 1), (middle, 16))
    runs = [BenchRun("decode", isl, min(512, longest // 4), c) for isl, c in decode]
    runs += [BenchRun("prefill", isl, 1, c) for isl, c in prefill]
    runs += [BenchRun("mixed", isl, 256, max(2, top // 8)) for isl in (middle, far)]
    runs += [BenchRun("pd", isl, 64, 1) for isl in (512, far)]
    return tuple(runs)


@dataclass(frozen=True, slots=True)
class Advice:
    """The run that would help most.

    before, after: expected error over the schedule without and with it; None where its part was not fitted at all.
    """

    run: BenchRun
    before: float | None = None
    after: float | None = None


def most_useful(fit: EngineFit, runs: Sequence[BenchRun]) -> Advice | None:
    """The run after which the fit's own predictions of the whole schedule are least in doubt."""
    best: tuple[float, Advice] | None = None
    parts = [
        (fit.part(title), [run for run in runs if run.kind == kind])
        for kind, title in (("decode", "decode step"), ("prefill", "prefill"))
    ]
    for part, own in sorted(parts, key=lambda pair: pair[0] is not None):
        if part is None or isinstance(part.fit, LevelFit):
            return Advice(_apart(part, own))
        doubt = _Doubt(part, own)
        for run in own:
            after = doubt.with_run(run)
            if best is None or doubt.before - after > best[0]:
                best = (doubt.before - after, Advice(run, doubt.before, after))
    return best[1] if best is not None and best[0] > 0 else None


def _apart(part: Part | None, runs: Sequence[BenchRun]) -> BenchRun:
    """The first run, or the one farthest in batch from those there are: a level needs its growth."""
    if part is None:
        return runs[0]
    seen = [row[1] for row in part.rows]
    return max(runs, key=lambda run: min(abs(math.log(run.concurrency / max(batch, 1.0))) for batch in seen))


class _Doubt:
    """Expected relative error of a linear fit's predictions, from the geometry of its rows and its residuals."""

    def __init__(self, part: Part, runs: Sequence[BenchRun]) -> None:
        import numpy as np  # noqa: PLC0415 - heavy, and only advice needs it

        self._np, self._part = np, part
        rows = np.array([[x / y for x in r] for r, y in zip(part.rows, part.measured, strict=True)])
        self._units = np.maximum(np.abs(rows).max(axis=0), 1e-300)
        scaled = rows / self._units
        self._information = scaled.T @ scaled + 1e-9 * np.eye(len(self._units))
        error = part.error if part.left_out_error is None else part.left_out_error
        self._noise = max(_LEAST_NOISE, 1.25 * error)
        self._asked = np.array([self._row(run) for run in runs])
        self.before = self._mean(self._information)

    def with_run(self, run: BenchRun) -> float:
        """The mean after one more run of that kind."""
        row = self._row(run)
        return self._mean(self._information + self._np.outer(row, row))

    def _row(self, run: BenchRun) -> Vector:
        predicted = max(self._part.fit.at(run.features), 1e-9)
        row: Vector = self._np.array(run.features) / predicted / self._units
        return row

    def _mean(self, information: Matrix) -> float:
        spread = self._np.linalg.solve(information, self._asked.T).T * self._asked
        return self._noise * math.sqrt(float(spread.sum(axis=1).mean()))
