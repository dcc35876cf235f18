"""How decoder layers attend: their parameters by sharding and the K/V elements they keep for a token.

Reads keys of the config; knows nothing of experts or of precision.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from disaggc.catalog.compressed_attention import compress_ratios, compressed_attention
from disaggc.catalog.config_keys import Keys
from disaggc.catalog.facts import LayerKind
from disaggc.catalog.families import Family
from disaggc.catalog.latent_attention import HEADS, MAX_DIM, MAX_HEADS, AttentionPart, latent_attention

_KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "num_attention_groups",
    "multi_query_group_num",
)


@dataclass(frozen=True, slots=True)
class GroupedShape:
    """Sizes of grouped-query attention (MHA and MQA are its ends). value_is_key: one projection gives both."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    value_is_key: bool = False


@dataclass(slots=True)
class AttentionReader:
    """Reads the attention of each layer of one config; layers of equal sizes are read once."""

    keys: Keys
    family: Family
    hidden: int
    layers: int
    _seen: dict[GroupedShape, AttentionPart] = field(default_factory=dict)
    _latent: AttentionPart | None = None
    _ratios: tuple[int, ...] = ()
    _heads: tuple[int, ...] = ()
    _kv_heads: tuple[int, ...] = ()

    def at(self, index: int, kind: LayerKind) -> AttentionPart:
        """The attention of a layer: compressed or multi-head latent where the keys say so, else grouped-query."""
        if self.keys.text("model_type") == "deepseek_v4":
            self._ratios = self._ratios or compress_ratios(self.keys, self.layers)
            return compressed_attention(self.keys, self.hidden, self._ratios[index])
        if self.keys.has("kv_lora_rank"):
            self._latent = self._latent or latent_attention(self.keys, self.hidden)
            return self._latent
        shape = self._shape(index, kind)
        if shape not in self._seen:
            self._seen[shape] = self._grouped(shape)
        return self._seen[shape]

    def _shape(self, index: int, kind: LayerKind) -> GroupedShape:
        keys = self.keys
        if not self._heads:
            self._heads, self._kv_heads = self._head_counts()
        heads, kv_heads = self._heads[index], self._kv_heads[index]
        dim = keys.integer("head_dim", "kv_channels", "attention_head_dim", "d_head", low=1, high=MAX_DIM,
                           default=self.family.head_dim or max(1, self.hidden // heads))  # fmt: skip
        value_dim = keys.integer("v_head_dim", low=1, high=MAX_DIM, default=dim)
        shape = _exception(keys, index, GroupedShape(heads, kv_heads, dim, value_dim))
        return _sliding(keys, shape) if kind is LayerKind.SLIDING else _global(keys, shape, kind)

    def _head_counts(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        keys, layers = self.keys, self.layers
        names = ("num_attention_heads_per_layer", *HEADS)
        heads = keys.per_layer(*names, layers=layers, high=MAX_HEADS, default=0)
        if not keys.has(*names):
            keys.required(*HEADS, high=MAX_HEADS)
        heads = tuple(max(1, h) for h in heads)
        single = _single_kv_head(keys)
        if single is not None:
            return heads, tuple(1 if single else h for h in heads)
        nested = keys.section("attn_config")
        source = nested if nested is not None and nested.has("kv_n_heads") else keys
        names = ("num_key_value_heads_per_layer", "kv_n_heads", *_KV_HEADS)
        if not source.has(*names):
            return heads, heads
        return heads, tuple(
            max(1, h) for h in source.per_layer(*names, layers=layers, high=MAX_HEADS, default=1)
        )

    def _grouped(self, shape: GroupedShape) -> AttentionPart:
        hidden = self.hidden
        if shape.heads % shape.kv_heads:
            self.keys.refuse(
                f"{shape.heads} attention heads cannot be shared by {shape.kv_heads} key-value heads"
            )
        query, out = shape.heads * shape.head_dim, shape.heads * shape.v_head_dim
        key, value = shape.kv_heads * shape.head_dim, shape.kv_heads * shape.v_head_dim
        qkv_bias, out_bias = _biases(self.keys, self.family)
        gate = _gate(self.keys, self.family, shape)
        sharded = (hidden + qkv_bias) * query + hidden * (gate + out) + out_bias * hidden
        if self.keys.text("model_type") == "gpt_oss":
            sharded += shape.heads  # one learned sink for each head
        norms = {"none": 0, "head": 2 * shape.head_dim, "all": query + key, "each": query + key}[
            _norm(self.keys, self.family)
        ]
        return AttentionPart(
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            v_head_dim=shape.v_head_dim,
            sharded=sharded,
            kv=(hidden + qkv_bias) * (key + (0 if shape.value_is_key else value)),
            replicated=norms,
            kv_elements=key + value,
        )


def _exception(keys: Keys, index: int, shape: GroupedShape) -> GroupedShape:
    """Sizes of one layer where `per_layer_config` sets it apart by its number."""
    outer = keys.section("per_layer_config")
    named = (
        next((n for n in outer.raw if n.isdigit() and len(n) < 6 and int(n) == index), None)
        if outer
        else None
    )
    own = outer.section(named) if outer and named else None
    if own is None:
        return shape
    dim = own.integer("head_dim", low=1, high=MAX_DIM, default=shape.head_dim)
    value_dim = dim if shape.v_head_dim == shape.head_dim else shape.v_head_dim
    return GroupedShape(
        own.integer("num_attention_heads", low=1, high=MAX_HEADS, default=shape.heads),
        own.integer("num_key_value_heads", low=1, high=MAX_HEADS, default=shape.kv_heads),
        dim,
        own.integer("v_head_dim", low=1, high=MAX_DIM, default=value_dim),
    )


def _sliding(keys: Keys, shape: GroupedShape) -> GroupedShape:
    """Sizes of sliding-window layers where a config gives them apart (MiMo, Step)."""
    other = keys.section("attention_other_setting")
    source = other or keys
    prefix = "" if other else "swa_"
    heads = source.integer(f"{prefix}num_attention_heads", low=1, high=MAX_HEADS, default=shape.heads)
    kv_names = (f"{prefix}num_key_value_heads", f"{prefix}num_attention_groups")
    kv_heads = source.integer(*kv_names, low=1, high=MAX_HEADS, default=shape.kv_heads)
    dim = source.integer(f"{prefix}head_dim", low=1, high=MAX_DIM, default=shape.head_dim)
    value_dim = source.integer(
        f"{prefix}v_head_dim", low=1, high=MAX_DIM, default=dim if other else shape.v_head_dim
    )
    return GroupedShape(heads, kv_heads, dim, value_dim)


def _global(keys: Keys, shape: GroupedShape, kind: LayerKind) -> GroupedShape:
    """Sizes of full-attention layers where a config gives them apart (Gemma 4)."""
    if kind is not LayerKind.FULL or not keys.has("global_head_dim"):
        return shape
    dim = keys.integer("global_head_dim", low=1, high=MAX_DIM, default=shape.head_dim)
    same = keys.flag("attention_k_eq_v", default=False)
    kv_heads = (
        keys.integer("num_global_key_value_heads", low=1, high=MAX_HEADS, default=shape.kv_heads)
        if same
        else shape.kv_heads
    )
    return replace(shape, head_dim=dim, v_head_dim=dim, kv_heads=kv_heads, value_is_key=same)


def _single_kv_head(keys: Keys) -> bool | None:
    """Old families say `multi_query` instead of a count: True = one key-value head, False = one for each head."""
    model_type = keys.text("model_type")
    falcon = model_type in {"falcon", "RefinedWeb", "RefinedWebModel"}
    if falcon and not keys.flag("new_decoder_architecture", default=False):
        return keys.flag("multi_query", default=True)
    if model_type == "gpt_bigcode":
        return keys.flag("multi_query", default=True)
    if model_type == "chatglm" and not keys.flag("multi_query_attention", default=False):
        return False
    return None


def _biases(keys: Keys, family: Family) -> tuple[int, int]:
    """1 or 0 for a bias on queries, keys and values, and on the output."""
    names = ("attention_bias", "use_bias", "bias")
    given = keys.flag(*names, default=False) if keys.has(*names) else None
    qkv = family.qkv_bias if given is None else given
    out = family.out_bias if given is None else given
    if family.qkv_bias and not family.out_bias:
        out = False  # Qwen2 and GLM put the bias on queries, keys and values alone
    qkv = keys.flag("add_qkv_bias", "qkv_bias", "use_qkv_bias", default=qkv)
    out = keys.flag("attention_out_bias", default=out)
    return int(qkv), int(out)


def _gate(keys: Keys, family: Family, shape: GroupedShape) -> int:
    """Columns of an output gate beside the queries: one for each value, or one for each head."""
    if keys.flag("use_head_wise_attn_gate", default=False):
        return shape.heads
    gating = keys.raw.get("gating")
    if gating is True or gating in ("per-head", "per_head"):
        return shape.heads
    wide = family.query_gate or gating in ("per-element", "per_element")
    return shape.heads * shape.v_head_dim if keys.flag("attn_output_gate", default=wide) else 0


def _norm(keys: Keys, family: Family) -> str:
    names = ("use_qk_norm", "qk_layernorm", "use_qk_layernorm")
    if keys.has(*names) and keys.text("model_type") != "llama4_text":
        wanted = keys.flag(*names, default=False)
        return ("head" if family.qk_norm == "none" else family.qk_norm) if wanted else "none"
    return family.qk_norm
