"""The shortest bench schedule that pins an engine down, as commands; and which of its runs would help most. No I/O."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from disaggc.perf.calibration.engine_fit import EngineFit, Part
from disaggc.perf.calibration.reading import RunKind


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


def most_useful(fit: EngineFit, runs: Sequence[BenchRun]) -> BenchRun | None:
    """The run whose row is least supported by those there are: the largest leverage over the fit's own geometry."""
    best: tuple[float, BenchRun] | None = None
    for run in runs:
        part = fit.part({"decode": "decode step", "prefill": "prefill"}.get(run.kind, "kv transfer"))
        if part is None:
            gain = math.inf if run.kind in {"decode", "prefill"} else 0.0
        elif run.kind in {"decode", "prefill"}:
            gain = _leverage(part, run.features)
        else:
            continue
        if best is None or gain > best[0]:
            best = (gain, run)
    return best[1] if best is not None and best[0] > 0 else None


def _leverage(part: Part, row: Sequence[float]) -> float:
    """X' (X'X)^-1 x in relative terms: how uncertain the fit's own prediction of that run is, over one run's noise."""
    import numpy as np  # noqa: PLC0415 - heavy, and only advice needs it

    rows = np.array([[x / y for x in r] for r, y in zip(part.rows, part.measured, strict=True)])
    predicted = max(part.fit.at(row), 1e-9)
    scaled = np.array(row) / predicted
    units = np.maximum(np.abs(rows).max(axis=0), 1e-300)
    information = (rows / units).T @ (rows / units) + 1e-9 * np.eye(len(units))
    x = scaled / units
    return float(x @ np.linalg.solve(information, x))
