"""What a model needs on one accelerator under a shape: weight bytes, KV bytes, and which TP and DCP degrees it allows.

DCP: decode context parallelism, by which TP ranks that would hold copies of a sequence's KV share it by tokens.
Pure arithmetic over ModelFacts and Shape; knows no accelerator, no traffic and no overheads.
"""

from __future__ import annotations

from disaggc.catalog.facts import Attention, ModelFacts
from disaggc.ir.plan import Shape

_KV_BYTES = {
    "auto": 2.0, "bfloat16": 2.0, "bf16": 2.0, "float16": 2.0, "half": 2.0, "float32": 4.0,
    "fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "fp8_inc": 1.0, "int8": 1.0, "fp8_ds_mla": 1.0,
    "fp8_per_token_head": 1.0, "int8_per_token_head": 1.0, "nvfp4": 0.5625,
}  # fmt: skip
_PADDED_VOCABULARY = 64
"""vLLM pads the vocabulary to a multiple of this before it is divided by TP."""


def kv_bytes_per_token(model: ModelFacts, kv_dtype: str, dtype: str | None = None) -> tuple[float, float]:
    """(full, sliding) bytes one token adds in the whole model, over full-length layers and over sliding-window layers.

    full holds the sparse-attention indexer's cache. kv_dtype as `--kv-cache-dtype`; `auto` is the checkpoint's declared
    cache dtype, else `dtype` (the model's own). Recurrent state is not per token: see `state_bytes_per_sequence`.
    """
    each = element_bytes(model, kv_dtype, dtype)
    if _uses_ds_mla(model, kv_dtype):
        size, elements = model.packed_cache_entry
        each = size / elements
    full, sliding = model.kv_elements_per_token_full * each, model.kv_elements_per_token_sliding * each
    return full + model.kv_extra_bytes_per_token, sliding


def element_bytes(model: ModelFacts, kv_dtype: str, dtype: str | None = None) -> float:
    """Bytes of one K or V element; an unknown dtype counts as 16-bit."""
    resolved = model.kv_cache_dtype if kv_dtype == "auto" else kv_dtype
    if resolved == "auto":
        resolved = dtype or model.dtype
    return _KV_BYTES.get(resolved.removeprefix("torch."), 2.0)


def _uses_ds_mla(model: ModelFacts, kv_dtype: str) -> bool:
    """Sparse-attention models store an fp8 cache in the layout their kernels need, whatever fp8 name is given."""
    sparse = model.kv_extra_bytes_per_token > 0
    resolved = model.kv_cache_dtype if kv_dtype == "auto" else kv_dtype
    return model.attention is Attention.MLA and (
        resolved == "fp8_ds_mla" or (sparse and resolved.startswith("fp8"))
    )


def kv_bytes_per_rank(model: ModelFacts, shape: Shape, kv_dtype: str) -> tuple[float, float]:
    """(full, sliding) bytes one token takes on one accelerator of the engine that holds it, at the fullest PP stage.

    GQA: max(1, kv_heads // TP) of the heads; MLA and its indexer: all of it on every TP rank. DP ranks each hold their
    own sequences, so DP does not divide a token. Ranks that hold the same heads share their tokens by DCP: over many
    tokens one in DCP stands here (`dcp_allowed` says where the engine can do that).
    """
    full, sliding = kv_bytes_per_token(model, kv_dtype)
    stage = _stage_share(model, shape.pp)
    full_share = 1.0 if latent_cache(model) else _heads_share(model.kv_heads, shape.tp)
    sliding_share = _heads_share(model.kv_heads_sliding or model.kv_heads, shape.tp)
    return full * full_share / shape.dcp * stage, sliding * sliding_share * stage


def state_bytes_per_rank(model: ModelFacts, shape: Shape) -> float:
    """Recurrent state of one sequence on one accelerator: divided by TP, at the fullest PP stage."""
    return model.state_bytes_per_sequence / shape.tp * _stage_share(model, shape.pp)


def weight_bytes_per_rank(model: ModelFacts, shape: Shape) -> float:
    """Weights on the fullest accelerator, bytes.

    Attention, MLP and shared experts by TP; KV projections by min(TP, kv_heads); MLA's low-rank inputs, routers, norms
    and the indexer on every rank; routed experts over DP x TP (whole ones under EP, rounded up; their width without);
    layers by PP, the embedding on the first stage and the head on the last; encoders whole on the first stage.
    """
    total = 0.0
    ends = {"embedding": 0.0, "head": 0.0}
    for group in model.weights:
        size = group.parameters * group.bytes_per_parameter * _share(model, shape, group.sharding)
        if group.name in ends:
            ends[group.name] += size * _vocabulary_padding(model, shape.tp)
        else:
            total += size
    if _tied(model) and shape.pp > 1:
        ends["head"] = ends["embedding"]  # the last stage needs its own copy
    ends["embedding"] += 2.0 * model.tower_parameters
    layers = total * _stage_share(model, shape.pp)
    return layers + (sum(ends.values()) if shape.pp == 1 else max(ends.values()))


def absorbed_bytes_per_rank(model: ModelFacts, shape: Shape) -> float:
    """The 16-bit copy of MLA's latent up-projection that vLLM makes after loading; divided by TP, by PP stage."""
    return 2.0 * model.absorbed_parameters / shape.tp * _stage_share(model, shape.pp)


def tp_allowed(model: ModelFacts, tp: int) -> str | None:
    """Why vLLM would refuse this TP degree, or None: heads must divide, and KV heads divide TP or be divided by it."""
    if model.heads % tp:
        return f"{model.heads} attention heads cannot be divided by tp {tp}"
    for heads in (model.kv_heads, model.kv_heads_sliding):
        if heads and not latent_cache(model) and heads % tp and tp % heads:
            return f"{heads} key-value heads and tp {tp} do not divide one another"
    return None


def dcp_allowed(model: ModelFacts, tp: int, dcp: int) -> str | None:
    """Why vLLM would refuse to share the KV of a sequence among `dcp` of the TP ranks, or None.

    Only ranks that hold copies can share them: all of them with a latent cache, TP / KV heads of them otherwise. Caches
    of sliding-window layers cannot be shared. vLLM 0.33 config/parallel.py (dcp divides tp), config/model.py:1578-1607,
    v1/kv_cache_interface.py (SlidingWindowSpec).
    """
    if dcp == 1:
        return None
    if tp % dcp:
        return f"tp {tp} cannot be divided into groups of dcp {dcp}"
    if model.sliding_window and model.kv_elements_per_token_sliding:
        return f"the sliding-window layers of {model.id} cannot share their KV among dcp {dcp} ranks"
    return None if latent_cache(model) else _heads_shared(model, tp, dcp)


def _heads_shared(model: ModelFacts, tp: int, dcp: int) -> str | None:
    if not model.kv_heads:
        return f"{model.id} keeps no KV that dcp {dcp} ranks could share"
    if tp // model.kv_heads < dcp:
        return (
            f"with {model.kv_heads} KV heads dcp {dcp} needs tp {dcp * model.kv_heads} or more, not tp {tp}"
        )
    queries = model.heads // model.kv_heads
    return f"{queries} query heads of each KV head cannot be divided by dcp {dcp}" if queries % dcp else None


def latent_cache(model: ModelFacts) -> bool:
    """Whether its full attention keeps one latent for all heads (MLA), so that every TP rank holds a copy of it."""
    return any(group.name == "attention_replicated" for group in model.weights)


def _tied(model: ModelFacts) -> bool:
    return all(group.name != "head" for group in model.weights)


def _heads_share(kv_heads: int, tp: int) -> float:
    return max(1, kv_heads // tp) / kv_heads


def _stage_share(model: ModelFacts, pp: int) -> float:
    """Share of the layers on the fullest PP stage."""
    count = len(model.layers)
    return -(-count // pp) / count


def _share(model: ModelFacts, shape: Shape, sharding: str) -> float:
    match sharding:
        case "tp":
            return 1 / shape.tp
        case "kv":
            return _heads_share(model.kv_heads, shape.tp)
        case "experts":
            ranks = shape.tp * shape.dp
            return -(-model.experts // ranks) / model.experts if shape.ep > 1 else 1 / ranks
        case _:
            return 1.0


def _vocabulary_padding(model: ModelFacts, tp: int) -> float:
    step = _PADDED_VOCABULARY * tp
    return -(-model.vocabulary // step) * step / model.vocabulary
