"""P:D choices that are known: layouts vendors chose, and cases in which colocated serving wins."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from disaggc.catalog.facts import ModelFacts
from disaggc.ir.plan import Role, Shape
from disaggc.perf.layout import Layout, LayoutPrediction, PoolLayout
from disaggc.perf.models import Models
from disaggc.perf.predict import predict
from disaggc.resolve.model import NodeGroupFacts, ResolvedService
from tests.fidelity.line import Line
from tests.fidelity.points import number
from tests.fidelity.recipes import kv_bytes
from tests.fidelity.subjects import accelerator_of, facts_of, group_of
from tests.perf.perf_cases import exact, load, nodes, resolved, service

_VENDOR_MODELS = {
    "dsr1": "deepseek-r1", "dsr1-fp8": "deepseek-r1", "kimik2.6": "kimi-k2.6", "dsv3": "deepseek-v3", "gptoss": "gpt-oss-120b", "kimik2": "kimi-k2", "kimik2.5": "kimi-k2.5",
    "glm5": "glm-5", "glm5.1": "glm-5.1", "qwen3.5": "qwen3.5-397b-a17b", "minimaxm2.5": "minimax-m2.5",
}  # fmt: skip
_EQUAL = 0.02
"""Layouts this close in throughput are told apart by end-to-end time."""
_MTP = {"method": "mtp", "tokens": 3, "acceptance": 0.7}


def vendor_choices(path: Path, every: int = 6) -> Line:
    """How often the share of prefill agrees with the vendor's within one replica, over every `every`-th recipe."""
    name = "P:D share of vendor recipes, within one replica"
    agreed, seen, open_, open_agreed, off = 0, 0, 0, 0, Counter[str]()
    with path.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if number(r["p_workers"]) + number(r["d_workers"]) > 2]
    for row in rows[::every]:
        found = _chosen(row)
        if isinstance(found, str):
            off[found] += 1
            continue
        chosen, options = found
        right = abs(chosen - int(number(row["p_workers"]))) <= 1
        seen += 1
        agreed += right
        open_ += options > 3
        open_agreed += right and options > 3
    figures = {
        "recipes": float(seen),
        "agree": agreed / seen if seen else math.nan,
        "recipes_with_4_splits_or_more": float(open_),
        "agree_there": open_agreed / open_ if open_ else math.nan,
        "skipped": float(sum(off.values())),
    }
    return Line(name, "none published", figures, "; ".join(f"{n} x {why}" for why, n in off.items()))


def _chosen(row: dict[str, str]) -> tuple[int, int] | str:
    """(prefill workers that the model would take on the recipe's accelerators, splits there are)."""
    facts = facts_of(_VENDOR_MODELS.get(row["model_prefix"], row["model_prefix"]), row["precision"])
    accelerator = accelerator_of(row["gpu"])
    if facts is None or accelerator is None:
        return f"unknown model or accelerator {row['model_prefix']} {row['gpu']}"
    group = group_of(accelerator)
    prefill, decode = (_shape(row, side) for side in ("p", "d"))
    total = (
        int(number(row["p_workers"])) * prefill.accelerators
        + int(number(row["d_workers"])) * decode.accelerators
    )
    one = _service(row, facts)
    built = Models.of(resolved(one, groups=(group,))).value
    assert built is not None
    best: tuple[float, float, int] | None = None
    splits = tuple(_splits(total, prefill.accelerators, decode.accelerators))
    for p, d in splits:
        seen = predict(built, one, _layout(group, (prefill, p), (decode, d)))
        if seen.reasons:
            continue
        key = (seen.total_tok_per_s.value, seen.classes[0].e2e.p50.value, p)
        if (
            best is None
            or key[0] > best[0] * (1 + _EQUAL)
            or (key[0] > best[0] * (1 - _EQUAL) and key[1] < best[1])
        ):
            best = key
    return "nothing fits" if best is None else (best[2], len(splits))


def _splits(total: int, prefill: int, decode: int) -> Iterator[tuple[int, int]]:
    for p in range(1, (total - decode) // prefill + 1):
        yield p, (total - p * prefill) // decode


def _shape(row: dict[str, str], side: str) -> Shape:
    tp, ep = int(number(row[f"{side}_tp"])), int(number(row[f"{side}_ep"]) or 1)
    if row[f"{side}_dp_attn"].lower() == "true":
        return Shape(dp=tp, ep=tp)
    return Shape(tp=tp, ep=max(1, ep))


def _service(row: dict[str, str], facts: ModelFacts) -> ResolvedService:
    isl, osl = 0.9 * number(row["isl"]), 0.9 * number(row["osl"])
    cap = int(number(row["concurrency"]))
    return service(
        facts,
        load(isl=exact(isl), osl=exact(osl), concurrency=cap),
        max_model_len=max(2048, math.ceil(1.4 * (isl + osl))),
        settings={"max-num-seqs": 4096} if cap > 2000 else None,
        speculative=_MTP if row["spec_decoding"] == "mtp" else None,
        kv_bytes=kv_bytes(facts.id, row["gpu"], row["precision"], engine=row["framework"], source="recipes"),
    )


def _layout(group: NodeGroupFacts, prefill: tuple[Shape, int], decode: tuple[Shape, int]) -> Layout:
    pools = (
        PoolLayout(Role.PREFILL, group, prefill[0], prefill[1]),
        PoolLayout(Role.DECODE, group, decode[0], decode[1]),
    )
    return Layout("disaggregated", pools)


_SLOW_PATH = 0.38e9
"""KV bytes/s that the control's own first-token times imply: 2.15 GB of cache in 5.7 s."""
_CONTROLS = (
    ("Qwen3-32B 8192/256, KV over 0.38 GB/s", 8192, 256, _SLOW_PATH, "colocated"),
    ("Qwen3-32B 2048/2048, KV over 0.38 GB/s", 2048, 2048, _SLOW_PATH, "colocated"),
    ("Qwen3-32B 256/4096, KV over 0.38 GB/s", 256, 4096, _SLOW_PATH, "colocated"),
)
_CONTROL_FILE = """\
version: 1
provenance: {tool: probe}
entries:
  - {model: Qwen/Qwen3-32B, accelerator: h100-sxm, constants: {kv_bytes_per_s: SPEED}}
"""


def negative_controls() -> Line:
    """Cases in which colocated serving won: llm-d's Qwen3-32B on H100 with a slow KV path (P TP1, D TP2 against TP2)."""
    figures = {label: _control(isl, osl, speed) for label, isl, osl, speed, _ in _CONTROLS}
    right = sum(ratio < 1 for ratio in figures.values())
    shown = {f"pd_over_colocated {label}": ratio for label, ratio in figures.items()}
    return Line(
        "Negative controls: colocated wins",
        "called right",
        {"controls": float(len(figures)), "right": float(right), **shown},
    )


def _control(isl: int, osl: int, speed: float) -> float:
    """Output tokens/s per accelerator of 1P1D (three accelerators) over one colocated TP2 replica (two)."""
    group = nodes("h100-sxm", count=2)
    facts = facts_of("qwen3-32b", "bf16")
    assert facts is not None
    one = service(
        facts, load(isl=isl, osl=osl, rate=None, concurrency=64), max_model_len=int(1.2 * (isl + osl))
    )
    built = Models.of(
        resolved(one, groups=(group,), calibration=_CONTROL_FILE.replace("SPEED", str(speed)))
    ).value
    assert built is not None
    apart = predict(built, one, _layout(group, (Shape(tp=1), 1), (Shape(tp=2), 1)))
    together = predict(built, one, Layout("colocated", (PoolLayout(Role.COLOCATED, group, Shape(tp=2), 1),)))
    return _each(apart, 3) / _each(together, 2)


def _each(seen: LayoutPrediction, accelerators: int) -> float:
    return seen.output_tok_per_s.value / accelerators if not seen.reasons else 0.0
