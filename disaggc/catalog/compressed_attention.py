"""DeepSeek V4's attention: one shared key-value entry for each token of a window, and compressed entries beyond it.

Reads `compress_ratios`, one for each layer: 0 keeps the window alone, 4 adds an entry (and one of the indexer) for each
four tokens, 128 one for each 128. Knows nothing of the layers around it.
"""

from __future__ import annotations

from disaggc.catalog.config_keys import Keys
from disaggc.catalog.latent_attention import HEADS, MAX_DIM, MAX_HEADS, AttentionPart

_INDEXED_RATIO = 4
_INDEX_ENTRY_BYTES = 132
PACKED_ENTRY = (584, 512)
"""Bytes and elements of one entry as vLLM stores it: 448 fp8, 64 rope values in bf16, 8 bytes of scales."""


def compress_ratios(keys: Keys, layers: int) -> tuple[int, ...]:
    """The compression of each layer; 0 where it keeps a window alone."""
    ratios = keys.per_layer("compress_ratios", layers=layers, high=MAX_DIM, default=0)
    if not isinstance(keys.raw.get("compress_ratios"), list):
        keys.refuse("`compress_ratios` is missing, so the cache of its layers cannot be sized")
    return ratios


def compressed_attention(keys: Keys, hidden: int, ratio: int) -> AttentionPart:
    """The attention of a layer with that compression."""
    heads = keys.required(*HEADS, high=MAX_HEADS)
    dim = keys.required("head_dim", high=MAX_DIM)
    query_rank = keys.required("q_lora_rank", high=MAX_DIM)
    out_rank = keys.required("o_lora_rank", high=MAX_DIM)
    groups = keys.integer("o_groups", low=1, high=MAX_HEADS, default=8)
    overlap = 2 if ratio == _INDEXED_RATIO else 1
    compressor = 2 * hidden * dim * overlap + ratio * dim * overlap + dim if ratio else 0
    queries = query_rank * heads * dim
    outputs = heads * dim * out_rank + groups * out_rank * hidden
    return AttentionPart(
        heads=heads,
        kv_heads=1,
        head_dim=dim,
        v_head_dim=dim,
        sharded=queries + outputs + heads,
        kv=0,
        replicated=hidden * (query_rank + dim) + query_rank + dim + compressor + 2 * _mixing(keys, hidden),
        kv_elements=dim // ratio if ratio else dim,
        indexer=_indexer(keys, hidden, query_rank) if ratio == _INDEXED_RATIO else 0,
        indexer_cache_bytes=_INDEX_ENTRY_BYTES // ratio if ratio == _INDEXED_RATIO else 0,
        latent=True,
        window_elements=dim if ratio else 0,
    )


def _mixing(keys: Keys, hidden: int) -> int:
    """Hyper-connections before attention and before the experts: a small matrix over all residual streams."""
    streams = keys.integer("hc_mult", high=64, default=0)
    return streams * hidden * (2 * streams + streams * streams)


def _indexer(keys: Keys, hidden: int, query_rank: int) -> int:
    heads = keys.integer("index_n_heads", low=1, high=MAX_HEADS, default=64)
    dim = keys.integer("index_head_dim", low=1, high=MAX_DIM, default=128)
    return query_rank * heads * dim + 2 * hidden * 2 * dim + hidden * heads
