"""Multi-head latent attention and its sparse indexer: parameters, and the one cache entry that all heads share.

Holds the shape in which any attention layer is told. Knows nothing of grouped-query attention.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.config_keys import Keys

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads", "attention_heads")
MAX_HEADS = 65_536
MAX_DIM = 1_000_000


@dataclass(frozen=True, slots=True)
class AttentionPart:
    """One attention layer. sharded: parameters divided by TP; kv: by min(TP, kv_heads); replicated: on every rank.

    indexer: parameters of the sparse-attention indexer, replicated. kv_elements: K and V elements of one token;
    window_elements: those it keeps besides while the token is inside the sliding window.
    """

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    sharded: int
    kv: int
    replicated: int
    kv_elements: int
    indexer: int = 0
    indexer_cache_bytes: int = 0
    latent: bool = False
    absorbed: int = 0
    window_elements: int = 0


def latent_attention(keys: Keys, hidden: int) -> AttentionPart:
    """Multi-head latent attention (DeepSeek V2 and later): the cache holds the latent and the shared rope key alone."""
    heads = keys.required(*HEADS, high=MAX_HEADS)
    latent = keys.integer("kv_lora_rank", low=1, high=MAX_DIM, default=1)
    nope = keys.required("qk_nope_head_dim", high=MAX_DIM)
    rope = keys.required("qk_rope_head_dim", high=MAX_DIM)
    value = keys.integer("v_head_dim", low=1, high=MAX_DIM, default=max(1, hidden // heads))
    query_rank = keys.integer("q_lora_rank", high=MAX_DIM, default=0)
    bias = int(keys.flag("attention_bias", default=False))
    queries = heads * (nope + rope) * (query_rank or hidden)
    ranks = query_rank * (hidden + 1 + bias) + hidden * (latent + rope) + latent + bias * (latent + rope)
    index_params, index_bytes = _indexer(keys, hidden, query_rank or hidden)
    return AttentionPart(
        heads=heads,
        kv_heads=1,
        head_dim=nope + rope,
        v_head_dim=value,
        sharded=queries + latent * heads * (nope + value) + heads * value * hidden + bias * hidden,
        kv=0,
        replicated=ranks,
        kv_elements=latent + rope,
        indexer=index_params,
        indexer_cache_bytes=index_bytes,
        latent=True,
        absorbed=latent * heads * (nope + value),
    )


def _indexer(keys: Keys, hidden: int, query_rank: int) -> tuple[int, int]:
    """Parameters and cache bytes a token of the sparse-attention indexer (fp8 key, one fp32 scale for each 128)."""
    if not keys.has("index_topk"):
        return 0, 0
    heads = keys.integer("index_n_heads", low=1, high=MAX_HEADS, default=64)
    dim = keys.integer("index_head_dim", low=1, high=MAX_DIM, default=128)
    return query_rank * heads * dim + hidden * dim + 2 * dim + hidden * heads, dim + 4 * -(-dim // 128)
