"""Result files of an engine whose constants are known, as the tools write them."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

MODEL = "deepseek-ai/DeepSeek-R1"


@dataclass(frozen=True)
class Engine:
    """a + b B + c S, p0 + l / R + q l^2, seconds."""

    a: float = 0.012
    b: float = 1.1e-4
    c: float = 3.0e-8
    p0: float = 0.03
    token: float = 4e-5
    square: float = 2e-9
    kv_setup: float = 0.004
    kv_byte: float = 1e-10
    kappa: float = 1.2
    noise: float = 0.0

    def step(self, batch: float, context: float) -> float:
        return self.a + self.b * batch + self.c * batch * context

    def prompt(self, tokens: float) -> float:
        return self.p0 + self.token * tokens + self.square * tokens * tokens

    def run(
        self, kind: str, isl: int, osl: int, concurrency: int, *, kv_bytes: float = 70272.0
    ) -> dict[str, object]:
        """One `vllm bench serve` result without details."""
        draw = random.Random(f"{kind}{isl}{osl}{concurrency}")  # noqa: S311 - a fixed design
        shaken = math.exp(draw.gauss(0, self.noise)) if self.noise else 1.0
        ttft = self.prompt(isl) + (self.kv_setup + isl * kv_bytes * self.kv_byte if kind == "pd" else 0.0)
        tpot = self.step(concurrency, isl + osl / 2)
        for _ in range(30):  # Little's law: what waits for its first token does not decode
            whole = ttft + (osl - 1) * tpot
            tpot = self.step(concurrency * (whole - ttft) / whole, isl + osl / 2)
        tpot *= self.kappa if kind == "mixed" else 1.0
        tpot *= shaken
        e2e = ttft + (osl - 1) * tpot
        count = max(8, 5 * concurrency)
        duration = count * (
            e2e / concurrency if kind != "prefill" else self.prompt(isl) - (self.p0 if concurrency > 1 else 0)
        )
        return {
            "model_id": MODEL, "num_prompts": count, "completed": count, "failed": 0, "request_rate": "inf",
            "max_concurrency": concurrency, "duration": duration,
            "total_input_tokens": isl * count, "total_output_tokens": osl * count,
            "median_ttft_ms": ttft * 1e3, "median_tpot_ms": tpot * 1e3, "median_itl_ms": tpot * 1e3,
            "p99_itl_ms": tpot * 1e3, "median_e2el_ms": e2e * 1e3,
            "disaggc_run": kind, "disaggc_accelerator": "mi300x", "disaggc_shape": "tp8", "disaggc_replicas": "1",
        }  # fmt: skip


def written(folder: Path, name: str, run: object) -> Path:
    path = folder / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(run), encoding="utf-8")
    return path
