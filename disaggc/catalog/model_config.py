"""Any Hugging Face config.json -> ModelFacts: parameters by sharding and precision, KV bytes, recurrent state.

The only way into the catalog for models, ours included. Refuses to know hardware and shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from disaggc.catalog.attention import AttentionPart, read_attention
from disaggc.catalog.config_keys import CODE, Keys, parse_object
from disaggc.catalog.facts import Attention, LayerKind, ModelFacts, WeightGroup
from disaggc.catalog.families import ENCODERS, Family, family_of
from disaggc.catalog.feedforward import FeedForward, read_feedforward
from disaggc.catalog.quantisation import Quantisation, read_quantisation
from disaggc.diagnostics import Diagnostic, Outcome, error

MAX_LAYERS = 2_000
MAX_HIDDEN = 1_000_000
MAX_VOCABULARY = 100_000_000
Sharding = Literal["tp", "kv", "experts", "replicated"]


def read_model_config(text: str, source: str, model_id: str | None = None) -> Outcome[ModelFacts]:
    """The facts of a config.json. `source` names it in messages; DGC203 says what is missing or impossible."""
    raw, problems = parse_object(text, source)
    if raw is None:
        return Outcome(None, tuple(problems))
    return model_from_mapping(raw, source, model_id)


def model_from_mapping(
    raw: Mapping[str, Any], source: str, model_id: str | None = None
) -> Outcome[ModelFacts]:
    """As `read_model_config`, from the parsed object."""
    problems: list[Diagnostic] = []
    refusal = _refusal(raw)
    if refusal is not None:
        return Outcome(None, (error(CODE, f"`{source}`: {refusal}"),))
    keys = Keys(_text_part(raw), source, problems)
    facts = _facts(keys, model_id or source, multimodal=_is_multimodal(raw))
    return Outcome(None if problems else facts, tuple(problems))


def _refusal(raw: Mapping[str, Any]) -> str | None:
    if raw.get("is_encoder_decoder") is True:
        return "an encoder-decoder model; its cross-attention cache cannot be handed from prefill to decode"
    if "_class_name" in raw or "_diffusers_version" in raw:
        return "a diffusers pipeline, not a language model"
    model_type = raw.get("model_type")
    if isinstance(model_type, str) and model_type in ENCODERS:
        return f"`model_type` is `{model_type}`, which is not a decoder-only language model"
    return None


_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_TOWERS = ("vision_config", "audio_config", "vision_tower", "audio_encoder_config", "sound_config")


def _text_part(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's keys: a nested text part wins, the outer object gives what it leaves out."""
    for name in _TEXT_PARTS:
        inner = raw.get(name)
        if isinstance(inner, dict):
            outer = {k: v for k, v in raw.items() if k not in _TEXT_PARTS and k not in _TOWERS}
            return _text_part({**outer, **{k: v for k, v in inner.items() if v is not None}})
    return raw


def _is_multimodal(raw: Mapping[str, Any]) -> bool:
    thinker = raw.get("thinker_config")
    return any(isinstance(raw.get(name), dict) for name in _TOWERS) or (
        isinstance(thinker, dict) and _is_multimodal(thinker)
    )


@dataclass(slots=True)
class _Ledger:
    """Parameters and bytes by group, added up layer by layer."""

    groups: dict[tuple[str, Sharding], list[float]] = field(default_factory=dict)

    def add(
        self, name: str, sharding: Sharding, parameters: int, each: float, share: tuple[int, int] = (1, 1)
    ) -> None:  # noqa: PLR0917 - one row of a table
        """`each` bytes for each parameter; share = (used, of) of them by one token."""
        row = self.groups.setdefault((name, sharding), [0, 0, 0.0])
        row[0] += parameters
        row[1] += parameters * share[0] // share[1]
        row[2] += parameters * each

    def weights(self) -> tuple[WeightGroup, ...]:
        """The groups with parameters, largest first."""
        rows = [(name, sharding, *row) for (name, sharding), row in self.groups.items() if row[0]]
        rows.sort(key=lambda r: (-r[2], r[0]))
        return tuple(WeightGroup(n, int(p), int(a), b / p, s) for n, s, p, a, b in rows)


def _facts(keys: Keys, model_id: str, *, multimodal: bool) -> ModelFacts:
    family = family_of(keys.text("model_type"))
    hidden = keys.required("hidden_size", "n_embd", "d_model", "dim", high=MAX_HIDDEN)
    count = keys.required("num_hidden_layers", "n_layer", "n_layers", "num_layers", high=MAX_LAYERS)
    vocabulary = keys.required("vocab_size", "padded_vocab_size", high=MAX_VOCABULARY)
    dtype = _dtype(keys)
    quant = read_quantisation(keys, 2.0)
    attention = read_attention(keys, family, hidden)
    feed = read_feedforward(keys, family, (hidden, count))
    kinds = _layer_kinds(keys, family, count)
    ledger = _Ledger()
    for index in range(count):
        _add_attention(ledger, attention, quant, index)
        _add_feedforward(ledger, feed, quant, (hidden, index))
        ledger.add("norm", "replicated", family.norms * hidden * (1 + family.norm_bias), quant.plain_bytes)
    ledger.add("norm", "replicated", hidden * (1 + family.norm_bias), quant.plain_bytes)
    ledger.add("embedding", "tp", vocabulary * hidden, quant.plain_bytes)
    if not keys.flag("tie_word_embeddings", default=family.tied):
        ledger.add("head", "tp", vocabulary * hidden, quant.plain_bytes)
    experts = feed.experts
    full = sum(kind is LayerKind.FULL for kind in kinds)
    sliding = sum(kind is LayerKind.SLIDING for kind in kinds)
    return ModelFacts(
        id=model_id,
        source=keys.source,
        architecture=_architecture(keys),
        attention=Attention.MLA if attention.latent else Attention.GQA,
        layers=kinds,
        hidden=hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        v_head_dim=attention.v_head_dim,
        vocabulary=vocabulary,
        intermediate=max(feed.dense_width, default=0),
        experts=experts.count if experts else 0,
        experts_per_token=experts.chosen if experts else 0,
        shared_experts=experts.shared if experts else 0,
        dtype=dtype,
        quantization=quant.scheme,
        compute_precision=quant.compute,
        max_position=keys.integer(
            "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", high=10**9, default=0
        ),
        weights=ledger.weights(),
        kv_elements_per_token_full=attention.kv_elements * full,
        kv_elements_per_token_sliding=attention.kv_elements * sliding,
        kv_extra_bytes_per_token=attention.indexer_cache_bytes * full,
        sliding_window=keys.integer("sliding_window", high=10**9, default=0) if sliding else 0,
        state_bytes_per_sequence=0,
        mtp_layers=keys.integer("num_nextn_predict_layers", high=MAX_LAYERS, default=0),
        multimodal=multimodal,
    )


def _architecture(keys: Keys) -> str:
    names = keys.texts("architectures")
    return names[0] if names else keys.text("model_type", default="unknown")


def _dtype(keys: Keys) -> str:
    name = keys.text("torch_dtype", "dtype", default="bfloat16").removeprefix("torch.")
    return name if name in {"bfloat16", "float16"} else "bfloat16"


def _layer_kinds(keys: Keys, family: Family, count: int) -> tuple[LayerKind, ...]:
    named = keys.texts("layer_types")
    if named:
        known = {"sliding_attention": LayerKind.SLIDING, "full_attention": LayerKind.FULL}
        return tuple(known.get(name, LayerKind.FULL) for name in named[:count])
    if family.default_period and keys.has("sliding_window"):
        return tuple(
            LayerKind.FULL if (i + 1) % family.default_period == 0 else LayerKind.SLIDING
            for i in range(count)
        )
    return (LayerKind.FULL,) * count


def _add_attention(ledger: _Ledger, part: AttentionPart, quant: Quantisation, index: int) -> None:
    module = f"model.layers.{index}.self_attn"
    each = quant.bytes_of(f"{module}.q_proj", linear=True)
    ledger.add("attention", "tp", part.sharded, each)
    ledger.add("attention_kv", "kv", part.kv, each)
    ledger.add("attention_replicated", "replicated", part.replicated, each)
    ledger.add("indexer", "replicated", part.indexer, each, (0, 1))


def _add_feedforward(ledger: _Ledger, feed: FeedForward, quant: Quantisation, place: tuple[int, int]) -> None:
    hidden, index = place
    module = f"model.layers.{index}.mlp"
    width = feed.dense_width[index]
    ledger.add(
        "mlp",
        "tp",
        feed.matrices() * hidden * width + feed.bias_of(width, hidden) * bool(width),
        quant.bytes_of(f"{module}.gate_proj", linear=True),
    )
    experts = feed.experts
    if experts is None or not feed.sparse[index]:
        return
    each = quant.bytes_of(f"{module}.experts.0.gate_proj", linear=True)
    one = feed.matrices() * hidden * experts.width + experts.expert_bias
    ledger.add("routed_experts", "experts", one * experts.count, each, (experts.chosen, experts.count))
    shared = quant.bytes_of(f"{module}.shared_experts.gate_proj", linear=True)
    ledger.add("shared_experts", "tp", feed.matrices() * hidden * experts.shared_width, shared)
    ledger.add("router", "replicated", experts.router, quant.plain_bytes)
