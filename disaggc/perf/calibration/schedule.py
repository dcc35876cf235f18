"""The shortest bench schedule that pins an engine down, as commands. No I/O."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from disaggc.ir.plan import Role
from disaggc.perf.calibration.reading import RunKind

ENGINE, PROXY = "ENGINE", "PROXY"
"""Shell variables with the addresses of one engine, and of the proxy of one prefill and one decode engine."""
_AT_ENGINE, _AT_PROXY = "http://127.0.0.1:8000", "http://127.0.0.1:8001"

SEQUENCES = 256
"""Most sequences that a run keeps in one engine."""
KINDS: dict[Role, tuple[RunKind, ...]] = {
    Role.PREFILL: ("prefill", "pd"),
    Role.DECODE: ("decode", "mixed"),
    Role.COLOCATED: ("decode", "prefill", "mixed"),
}
"""What is run of an engine, by its roles."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a schedule measures. name: begins its result files. served: what the engine calls the model."""

    name: str
    model: str
    served: str | None
    metadata: tuple[tuple[str, str], ...]


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

    def result_file(self, engine: str) -> str:
        """Its result's name, its engine's name first: two engines never share one."""
        return f"{engine}-{self.kind}-{self.isl}-{self.osl}-c{self.concurrency}.json"

    def command(self, engine: Bench) -> str:
        """The command line, for a shell. The address is a variable's with a default."""
        pairs = [f"{key}={value}" for key, value in (("disaggc_run", self.kind), *engine.metadata)]
        served = () if engine.served in {None, engine.model} else ("--served-model-name", str(engine.served))
        words = [
            "vllm", "bench", "serve", "--model", engine.model, *served, "--dataset-name", "random",
            "--random-input-len", str(self.isl), "--random-output-len", str(self.osl), "--ignore-eos",
            "--max-concurrency", str(self.concurrency), "--num-prompts", str(self.prompts), "--seed", str(self.isl),
            "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed",
            "--result-filename", self.result_file(engine.name), "--metadata", *pairs,
        ]  # fmt: skip
        at = f"{PROXY}:-{_AT_PROXY}" if self.kind == "pd" else f"{ENGINE}:-{_AT_ENGINE}"
        return f'{shlex.join(words)} --base-url "${{{at}}}"'


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
