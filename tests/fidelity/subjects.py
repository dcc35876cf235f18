"""A point of a measured table -> the model, pools and traffic that perf predicts; or the reason why it cannot.

Holds the aliases between the tables' names and the catalog's. Assumptions that a table forces are stated here.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.model_config import model_from_mapping
from disaggc.ir.plan import Role, Shape
from disaggc.perf.layout import Layout, PoolLayout
from disaggc.perf.memory import NoFit
from disaggc.perf.models import Models
from disaggc.resolve.model import Lengths, NodeGroupFacts, ResolvedService
from tests.fidelity.points import Point
from tests.fidelity.recipes import kv_bytes
from tests.fidelity.shapes import copies_of, shape_of
from tests.perf.perf_cases import CATALOG, load, nodes, resolved, service

_MODELS = Path(__file__).with_name("models.toml")
MODEL_ALIASES = {
    "deepseek-r1-671b": "deepseek-ai/DeepSeek-R1", "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-r1-0528": "deepseek-ai/DeepSeek-R1", "r1": "deepseek-ai/DeepSeek-R1",
    "deepseek-v3 (finetuned)": "deepseek-ai/DeepSeek-V3", "deepseek-v3": "deepseek-ai/DeepSeek-V3",
    "deepseek-v3.1": "deepseek-ai/DeepSeek-V3", "deepseek-v3.2": "deepseek-ai/DeepSeek-V3.2",
    "gpt-oss-120b": "openai/gpt-oss-120b", "gpt-oss-20b": "openai/gpt-oss-20b",
    "kimi-k2.5": "moonshotai/Kimi-K2-Instruct", "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "kimi-k2-thinking": "moonshotai/Kimi-K2-Instruct", "kimi-k2.6": "moonshotai/Kimi-K2-Instruct",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2", "minimax-m2": "MiniMaxAI/MiniMax-M2", "minimax-m2.1": "MiniMaxAI/MiniMax-M2",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b-fp8": "Qwen/Qwen3.5-397B-A17B",
    "glm-5": "zai-org/GLM-5", "glm-5-fp8": "zai-org/GLM-5", "glm-5.1": "zai-org/GLM-5", "glm-5.2-744b": "zai-org/GLM-5",
    "qwen3-32b": "Qwen/Qwen3-32B", "qwen3-32b-nvfp4": "Qwen/Qwen3-32B", "qwen3-32b-fp8": "Qwen/Qwen3-32B",
    "qwen3-8b": "Qwen/Qwen3-8B", "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "qwen3-235b-a22b-fp8": "Qwen/Qwen3-235B-A22B", "opt-66b": "facebook/opt-66b",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B", "llama-3.3-70b": "meta-llama/Llama-3.3-70B-Instruct",
    "llama-3.3-70b-instruct": "meta-llama/Llama-3.3-70B-Instruct", "llama2-70b": "meta-llama/Llama-3.1-70B",
}  # fmt: skip
"""Name without its organisation, lower case -> a model whose sizes are known. Successors of one architecture share it."""
GPU_ALIASES = {
    "a100": "a100-80g", "a100-80g": "a100-80g", "h100": "h100-sxm", "h100-80g": "h100-sxm", "h200-141g": "h200",
    "see readme (8xgpu node)": "h200", "8-gpu node 4x400gbe(200gb/s)": "h800",
}  # fmt: skip
"""Where a table does not name the accelerator, the one its model and engine were commonly run on (H200; H800)."""
_BITS = {
    "fp4": 0.5625,
    "nvfp4": 0.5625,
    "mxfp4": 0.53125,
    "int4": 0.5625,
    "fp8": 1.0,
    "int8": 1.0,
    "bf16": 2.0,
    "fp16": 2.0,
}
_COMPUTE = {"fp4": "fp4", "nvfp4": "fp4", "fp8": "fp8", "int4": "bf16", "bf16": "bf16", "fp16": "bf16"}
_WHOLE = {"embedding", "head", "norm", "router", "indexer"}
"""Weight groups that no published checkpoint quantises."""
_BY_CHECKPOINT = {"inferencex_token_position"}
"""Sources whose launch scripts load the checkpoint by its name: weights have the precision it was published in, whatever
the table says (Qwen3.5-397B-A17B: bf16). The same scripts ask for H200 nodes for two of its three models."""
_FIRST_CAP = 128.0
"""Requests in flight in the first run over the prompts that later runs repeat."""
_NVL72 = {"gb200", "gb300"}


@dataclass(frozen=True, slots=True)
class Subject:
    """What perf is asked about one point. assumed: the table does not name the accelerator."""

    point: Point
    models: Models
    service: ResolvedService
    layout: Layout
    group: NodeGroupFacts
    assumed: bool


def subject_of(point: Point, calibration: str | None = None) -> Subject | str:
    """The subject, or why there is none."""
    own = point.source in _BY_CHECKPOINT and "fp8" not in point.model.lower()
    facts = facts_of(point.model, "" if own else point.precision)
    if facts is None:
        return f"model `{point.model}` is unknown"
    accelerator = accelerator_of(point.gpu)
    if accelerator is None:
        return f"accelerator `{point.gpu}` is unknown"
    if not (math.isfinite(point.isl) and math.isfinite(point.osl)):
        return "prompt or output length is not a number"
    if not (math.isfinite(point.concurrency) or (math.isfinite(point.rate) and point.rate > 0)):
        return "neither concurrency nor rate is given"
    group = group_of(accelerator)
    layout = _layout(point, group)
    if isinstance(layout, str):
        return layout
    one = _service(point, facts, layout)
    fabric = "infiniband"
    built = Models.of(resolved(one, groups=(group,), fabric=fabric, calibration=calibration)).value
    assert built is not None
    if point.cached and point.closed:
        hit = _cached_share(point, built, (one, layout))
        one = replace(one, classes=tuple(replace(c, prefix_hit=hit) for c in one.classes))
    return Subject(point, built, one, layout, group, assumed="node" in point.gpu.lower())


def _cached_share(point: Point, models: Models, of: tuple[ResolvedService, Layout]) -> float:
    """Share of the prompt tokens that earlier runs of the same prompts left in the prefix caches.

    The table's warning says that the runs went from 128 in flight down by halves over the same prompts, each prompt to
    any of the prefill replicas. A replica that cannot hold what it saw keeps nothing: the least recently used block is
    the next one asked for.
    """
    one, layout = of
    pool = next((p for p in layout.pools if p.role is Role.PREFILL), layout.pools[0])
    earlier = round(math.log2(_FIRST_CAP / point.concurrency))
    seen = 1 - (1 - 1 / pool.replicas) ** earlier
    fit = models.memory(one, pool.group, pool.role, shape=pool.shape)
    held = 0 if isinstance(fit, NoFit) else (fit.kv_tokens_low + fit.kv_tokens_high) / 2 * fit.ranks
    if not math.isfinite(point.requests) or seen * point.requests * point.isl > held:
        return 0.0
    return seen * (1 - 1 / point.isl)


def accelerator_of(name: str) -> str | None:
    """Catalog id of an accelerator as tables name it."""
    key = name.strip().lower()
    found = CATALOG.accelerator(GPU_ALIASES.get(key, key))
    return None if found is None else found.id


def group_of(accelerator: str) -> NodeGroupFacts:
    """Nodes of that accelerator: eight per node with a 400 Gbit card each, four per tray of an NVL72 rack."""
    per_node = 4 if accelerator in _NVL72 else 8
    return nodes(accelerator, count=64, per_node=per_node, gbit=400, price=None)


@lru_cache(maxsize=64)
def facts_of(name: str, precision: str) -> ModelFacts | None:
    """Facts of a model as tables name it, its weights at the precision of the row."""
    key = name.strip().rsplit("/", 1)[-1].lower()
    known = MODEL_ALIASES.get(key, name)
    facts = CATALOG.model(known) or _extra(known)
    if facts is None or not precision:
        return facts
    return _at_precision(facts, precision.lower().split("/")[0])


def _extra(name: str) -> ModelFacts | None:
    table = tomllib.loads(_MODELS.read_text(encoding="utf-8"))
    return model_from_mapping(table[name], name, name).value if name in table else None


def _at_precision(facts: ModelFacts, precision: str) -> ModelFacts:
    """The model with its matrices at another precision; four-bit mixtures of experts keep attention as it was."""
    if precision not in _COMPUTE or (precision == "fp4" and facts.quantization == "mxfp4"):
        return facts
    four = _BITS[precision] < 1
    target = _BITS[precision]
    weights = []
    for group in facts.weights:
        keep = group.name in _WHOLE or (
            four and facts.is_moe and group.name not in {"routed_experts", "shared_experts", "mlp"}
        )
        at = (
            min(group.bytes_per_parameter, 1.0)
            if keep and group.name not in _WHOLE
            else group.bytes_per_parameter
        )
        weights.append(replace(group, bytes_per_parameter=at if keep else target))
    return replace(facts, weights=tuple(weights), compute_precision=_COMPUTE[precision])  # type: ignore[arg-type]


def _lengths(mean: float, point: Point) -> Lengths:
    if point.source.startswith(
        ("inferencex_via", "inferencex_joined")
    ):  # uniform in [0.8, 1.0] of the nominal
        unit = mean / 0.9
        return Lengths(mean, mean, 0.98 * unit, 0.998 * unit, 0.2 / math.sqrt(12) / 0.9)
    return Lengths(mean, mean, mean, mean, 0.0)


def _service(point: Point, facts: ModelFacts, layout: Layout) -> ResolvedService:
    rate = point.rate if math.isfinite(point.rate) and point.rate > 0 else None
    cap = int(point.concurrency) if math.isfinite(point.concurrency) else None
    running = max(p.replicas * p.shape.dp for p in layout.pools if p.role is not Role.PREFILL)
    sequences = max(1024, math.ceil(1.3 * (cap or 1024) / running))
    return service(
        facts,
        load(
            isl=_lengths(point.isl, point),
            osl=_lengths(max(point.osl, 1.0), point),
            rate=rate,
            concurrency=cap,
        ),
        settings={"max-num-seqs": sequences} if cap and cap / running > 700 else None,
        max_model_len=max(2048, math.ceil((point.isl + point.osl) * 1.2)),
        kv_bytes=kv_bytes(point.model, point.gpu, point.precision, engine=point.backend, source=point.source),
    )


def _layout(point: Point, group: NodeGroupFacts) -> Layout | str:
    if point.mode == "disagg":
        return _disaggregated(point, group)
    if point.mode != "agg":
        return f"mode `{point.mode}` has no traffic to predict"
    shape = shape_of(point.p_parallel or point.d_parallel, math.nan)
    if shape is None:
        return f"parallelism `{point.p_parallel}` is not understood"
    stated = copies_of(point.p_parallel)
    count = stated or (max(1, round(point.n_gpus / shape.accelerators)) if math.isfinite(point.n_gpus) else 1)
    if shape.tp > 16:
        return f"parallelism `{point.p_parallel}` is not of one engine"
    return Layout("colocated", (PoolLayout(Role.COLOCATED, group, shape, count),))


def _disaggregated(point: Point, group: NodeGroupFacts) -> Layout | str:
    if not (point.p_workers >= 1 and point.d_workers >= 1):
        return "worker counts are not given"
    pools = []
    for role, workers, text, gpus in (
        (Role.PREFILL, point.p_workers, point.p_parallel, point.p_gpus),
        (Role.DECODE, point.d_workers, point.d_parallel, point.d_gpus),
    ):
        shape = shape_of(text, gpus / workers)
        if shape is None and math.isfinite(point.n_gpus):  # layouts that say only "1P1D": equal replicas
            each = point.n_gpus / (point.p_workers + point.d_workers)
            shape = Shape(tp=int(each)) if "?" in text and each == int(each) else None
        if shape is None:
            of = f"{gpus:g}" if math.isfinite(gpus) else "an unstated number of"
            return f"parallelism `{text}` is not understood for {of} accelerators"
        pools.append(PoolLayout(role, group, shape, int(workers)))
    return Layout("disaggregated", tuple(pools))
