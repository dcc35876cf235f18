"""How one decoder layer attends: its parameters by sharding and the K/V elements it keeps for a token.

Reads keys of the config; knows nothing of layers around it, of experts, or of precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.config_keys import Keys
from disaggc.catalog.families import Family

_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "num_attention_groups",
    "multi_query_group_num",
)
MAX_HEADS = 65_536
MAX_DIM = 1_000_000


@dataclass(frozen=True, slots=True)
class AttentionPart:
    """One attention layer. sharded: parameters divided by TP; kv: divided by min(TP, kv_heads); replicated: on every rank.

    indexer: parameters of the sparse-attention indexer, replicated. kv_elements: K and V elements of one token.
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


def read_attention(keys: Keys, family: Family, hidden: int) -> AttentionPart:
    """The (full) attention of a config: multi-head latent where `kv_lora_rank` is given, else grouped-query."""
    if keys.has("kv_lora_rank"):
        return _latent(keys, hidden)
    heads = keys.required(*_HEADS, high=MAX_HEADS)
    head_dim = keys.integer(
        "head_dim", "kv_channels", "attention_head_dim", low=1, high=MAX_DIM, default=max(1, hidden // heads)
    )
    v_head_dim = keys.integer("v_head_dim", low=1, high=MAX_DIM, default=head_dim)
    return grouped(keys, family, GroupedShape(hidden, heads, _kv_heads(keys, heads), head_dim, v_head_dim))


@dataclass(frozen=True, slots=True)
class GroupedShape:
    """Sizes of grouped-query attention."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int


def grouped(keys: Keys, family: Family, shape: GroupedShape) -> AttentionPart:
    """Parameters of grouped-query attention (MHA and MQA are its ends), with the config's or the family's biases."""
    hidden, heads, kv_heads = shape.hidden, shape.heads, shape.kv_heads
    if heads % kv_heads:
        keys.refuse(f"{heads} attention heads cannot be shared by {kv_heads} key-value heads")
    query, out = heads * shape.head_dim, heads * shape.v_head_dim
    key, value = kv_heads * shape.head_dim, kv_heads * shape.v_head_dim
    qkv_bias, out_bias = _biases(keys, family)
    gate = query if family.query_gate else 0
    sharded = hidden * (query + gate + out) + (qkv_bias * (query + gate)) + out_bias * hidden
    if keys.text("model_type") == "gpt_oss":
        sharded += heads  # one learned sink for each head
    norms = {"none": 0, "head": 2 * shape.head_dim, "all": query + key}[_query_norm(keys, family)]
    return AttentionPart(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=shape.head_dim,
        v_head_dim=shape.v_head_dim,
        sharded=sharded,
        kv=(hidden + qkv_bias) * (key + value),
        replicated=norms,
        kv_elements=key + value,
    )


def _kv_heads(keys: Keys, heads: int) -> int:
    model_type = keys.text("model_type")
    if model_type in {"falcon", "RefinedWeb", "RefinedWebModel"} and not keys.flag(
        "new_decoder_architecture", default=False
    ):
        return 1 if keys.flag("multi_query", default=True) else heads
    if model_type == "gpt_bigcode":
        return 1 if keys.flag("multi_query", default=True) else heads
    if model_type == "chatglm" and not keys.flag("multi_query_attention", default=False):
        return heads
    nested = keys.section("attn_config")
    source = nested if nested is not None and nested.has("kv_n_heads") else keys
    return source.integer("kv_n_heads", *_KV_HEADS, low=1, high=MAX_HEADS, default=heads)


def _biases(keys: Keys, family: Family) -> tuple[int, int]:
    everywhere = (
        keys.has("attention_bias")
        or keys.has("use_bias")
        or (keys.has("bias") and not keys.has("add_qkv_bias"))
    )
    given = keys.flag("attention_bias", "use_bias", "bias", default=False) if everywhere else None
    qkv = family.qkv_bias if given is None else given
    out = family.out_bias if given is None else given
    if family.qkv_bias and not family.out_bias:
        out = False  # Qwen2 and GLM put the bias on queries, keys and values alone
    qkv = keys.flag("add_qkv_bias", "qkv_bias", "use_qkv_bias", default=bool(qkv))
    return int(qkv), int(out)


def _query_norm(keys: Keys, family: Family) -> str:
    if keys.has("use_qk_norm", "qk_layernorm"):
        wanted = keys.flag("use_qk_norm", "qk_layernorm", default=False)
        return ("head" if family.qk_norm == "none" else family.qk_norm) if wanted else "none"
    return family.qk_norm


def _latent(keys: Keys, hidden: int) -> AttentionPart:
    """Multi-head latent attention (DeepSeek V2 and later): the cache holds the latent and the shared rope key alone."""
    heads = keys.required(*_HEADS, high=MAX_HEADS)
    latent = keys.integer("kv_lora_rank", low=1, high=MAX_DIM, default=1)
    nope = keys.required("qk_nope_head_dim", high=MAX_DIM)
    rope = keys.required("qk_rope_head_dim", high=MAX_DIM)
    value = keys.required("v_head_dim", high=MAX_DIM)
    query_rank = keys.integer("q_lora_rank", high=MAX_DIM, default=0)
    query = heads * (nope + rope)
    queries = query * (query_rank or hidden)
    index_params, index_bytes = _indexer(keys, hidden, query_rank or hidden)
    bias = keys.flag("attention_bias", default=False)
    return AttentionPart(
        heads=heads,
        kv_heads=1,
        head_dim=nope + rope,
        v_head_dim=value,
        sharded=queries + latent * heads * (nope + value) + heads * value * hidden + (hidden if bias else 0),
        kv=0,
        replicated=hidden * query_rank
        + query_rank
        + hidden * (latent + rope)
        + latent
        + (query_rank + latent + rope if bias else 0),
        kv_elements=latent + rope,
        indexer=index_params,
        indexer_cache_bytes=index_bytes,
        latent=True,
    )


def _indexer(keys: Keys, hidden: int, query_rank: int) -> tuple[int, int]:
    """Parameters and cache bytes a token of the sparse-attention indexer (fp8 key, one fp32 scale for each 128)."""
    if not keys.has("index_topk"):
        return 0, 0
    heads = keys.integer("index_n_heads", low=1, high=MAX_HEADS, default=64)
    dim = keys.integer("index_head_dim", low=1, high=MAX_DIM, default=128)
    return query_rank * heads * dim + hidden * dim + 2 * dim + hidden * heads, dim + 4 * -(-dim // 128)
