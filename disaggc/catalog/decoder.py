"""Adds up a decoder layer by layer: parameters by sharding and precision, cache bytes, recurrent state.

Joins what attention, feedforward, recurrent and quantisation read; reads no key that one of them owns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from disaggc.catalog.attention import AttentionPart, AttentionReader
from disaggc.catalog.config_keys import Keys
from disaggc.catalog.facts import Attention, LayerKind, ModelFacts, WeightGroup
from disaggc.catalog.families import FAMILIES, Family, family_of
from disaggc.catalog.feedforward import FeedForward, read_feedforward
from disaggc.catalog.layers import LayerPlan, read_layers
from disaggc.catalog.quantisation import Format, Quantisation, read_quantisation
from disaggc.catalog.recurrent import RecurrentPart, read_recurrent

MAX_LAYERS = 2_000
MAX_HIDDEN = 1_000_000
MAX_VOCABULARY = 100_000_000
MAX_POSITION = 10**10
Sharding = Literal["tp", "kv", "experts", "replicated"]
_ATTENDING = frozenset({LayerKind.FULL, LayerKind.SLIDING})


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What surrounds the decoder in its config: the name it goes by and the encoders beside it."""

    model_id: str
    multimodal: bool
    tower_parameters: int


@dataclass(slots=True)
class _Row:
    parameters: int = 0
    active: int = 0
    size: float = 0.0


@dataclass(slots=True)
class _Ledger:
    """Parameters and bytes by group, added up layer by layer."""

    quantisation: Quantisation
    rows: dict[tuple[str, Sharding], _Row] = field(default_factory=dict)

    def add(self, name: str, sharding: Sharding, parameters: int) -> _Entry:
        return _Entry(self, name, sharding, parameters)

    def weights(self) -> tuple[WeightGroup, ...]:
        rows = sorted(((k, r) for k, r in self.rows.items() if r.parameters), key=lambda p: (-p[1].parameters, p[0]))
        return tuple(WeightGroup(k[0], r.parameters, r.active, r.size / r.parameters, k[1]) for k, r in rows)


@dataclass(frozen=True, slots=True)
class _Entry:
    """One addition to the ledger, finished by `named`."""

    ledger: _Ledger
    name: str
    sharding: Sharding
    parameters: int

    def named(self, *modules: str, used: tuple[int, int] = (1, 1)) -> None:
        """`modules`: what the weights are called in ignore lists; used = (n, of): the share one token uses."""
        row = self.ledger.rows.setdefault((self.name, self.sharding), _Row())
        row.parameters += self.parameters
        row.active += self.parameters * used[0] // used[1]
        row.size += self.parameters * self.ledger.quantisation.of(self.name, modules).bytes_each


def decoder_facts(keys: Keys, wrapping: Wrapping) -> ModelFacts:
    """The facts of the language model whose keys these are; problems are noted on the keys."""
    family = family_of(keys.text("model_type"))
    hidden = keys.required("hidden_size", "n_embd", "d_model", "dim", "model_dim", high=MAX_HIDDEN)
    count = keys.required("num_hidden_layers", "n_layer", "n_layers", "num_layers", high=MAX_LAYERS)
    vocabulary = keys.required("vocab_size", "padded_vocab_size", high=MAX_VOCABULARY)
    quantisation = read_quantisation(keys, Format("none", 2.0, "bf16"))
    plan = read_layers(keys, family, count)
    feed = read_feedforward(keys, family, (hidden, plan))
    recurrent = read_recurrent(keys, family, hidden) if plan.parallel_state or LayerKind.LINEAR in plan.kinds else None
    if recurrent is None and LayerKind.LINEAR in plan.kinds:
        keys.refuse("some layers are recurrent, but no key gives the size of their state")
    reader = AttentionReader(keys, family, hidden, count)
    parts = tuple(reader.at(i, kind) if kind in _ATTENDING else None for i, kind in enumerate(plan.attends))
    ledger = _Ledger(quantisation)
    for index, kind in enumerate(plan.kinds):
        _add_mixer(ledger, (index, kind, plan), (parts[index], recurrent))
        _add_feedforward(ledger, feed, (index, hidden))
        norms = family.norms * hidden * (1 + family.norm_bias)
        ledger.add("norm", "replicated", norms).named()
    _add_ends(ledger, keys, (family, hidden, vocabulary))
    sizes = _Sizes(hidden, vocabulary, plan, feed, recurrent)
    return _facts(keys, wrapping, (ledger, sizes, parts))


@dataclass(frozen=True, slots=True)
class _Sizes:
    hidden: int
    vocabulary: int
    plan: LayerPlan
    feed: FeedForward
    recurrent: RecurrentPart | None


def _add_mixer(
    ledger: _Ledger, place: tuple[int, LayerKind, LayerPlan], parts: tuple[AttentionPart | None, RecurrentPart | None]
) -> None:
    index, kind, plan = place
    attention, recurrent = parts
    if recurrent is not None and (kind is LayerKind.LINEAR or plan.parallel_state):
        names = (f"model.layers.{index}.mamba.in_proj", f"model.layers.{index}.linear_attn.in_proj_qkvz")
        ledger.add("recurrent", "tp", recurrent.parameters).named(*names)
    if attention is None:
        return
    here = f"model.layers.{index}.self_attn"
    ledger.add("attention", "tp", attention.sharded).named(f"{here}.o_proj", f"{here}.q_proj", f"{here}.q_b_proj")
    own = 0 if kind is LayerKind.NONE else attention.kv  # a layer that reads another's cache has no keys of its own
    ledger.add("attention_kv", "kv", own).named(f"{here}.k_proj")
    latent = (f"{here}.q_a_proj", f"{here}.kv_a_proj_with_mqa") if attention.latent else (f"{here}.q_norm",)
    ledger.add("attention_replicated" if attention.latent else "norm", "replicated", attention.replicated).named(*latent)
    # Published counts of active parameters leave the indexer out, and so does this one.
    ledger.add("indexer", "replicated", attention.indexer).named(f"{here}.indexer.wq_b", used=(0, 1))


def _add_feedforward(ledger: _Ledger, feed: FeedForward, place: tuple[int, int]) -> None:
    index, hidden = place
    here = f"model.layers.{index}.mlp"
    ledger.add("mlp", "tp", feed.dense_parameters(index, hidden)).named(f"{here}.gate_proj", f"{here}.down_proj")
    experts = feed.experts
    if experts is None or not feed.sparse[index]:
        return
    one = feed.matrices * experts.hidden * experts.width + experts.expert_bias
    names = (f"{here}.experts.0.gate_proj", f"model.layers.{index}.block_sparse_moe.experts.0.w1", f"{here}.experts")
    ledger.add("routed_experts", "experts", one * experts.count).named(*names, used=(experts.chosen, experts.count))
    shared = (f"{here}.shared_experts.gate_proj", f"{here}.shared_expert.gate_proj")
    width = feed.matrices * hidden * experts.shared_width + experts.extra
    ledger.add("shared_experts", "tp", width).named(*shared)
    ledger.add("router", "replicated", experts.router).named()


def _add_ends(ledger: _Ledger, keys: Keys, place: tuple[Family, int, int]) -> None:
    family, hidden, vocabulary = place
    wide = keys.integer("word_embed_proj_dim", low=1, high=MAX_HIDDEN, default=hidden)
    ledger.add("norm", "replicated", hidden * (1 + family.norm_bias)).named()
    positions = _positions(keys) * hidden if family.learned_positions else 0
    ledger.add("embedding", "tp", _layer_inputs(keys, (hidden, vocabulary))).named()
    ledger.add("embedding", "tp", vocabulary * wide + (2 * wide * hidden if wide != hidden else 0)).named()
    ledger.add("embedding", "replicated", positions).named()
    if not keys.flag("tie_word_embeddings", default=family.tied):
        ledger.add("head", "tp", vocabulary * hidden).named("lm_head")


def _layer_inputs(keys: Keys, sizes: tuple[int, int]) -> int:
    """Gemma 3n and 4 E-models: an embedding for each layer, its projections, and low-rank side paths."""
    hidden, vocabulary = sizes
    layers = keys.integer("num_hidden_layers", high=MAX_LAYERS, default=1)
    wide = keys.integer("hidden_size_per_layer_input", high=MAX_HIDDEN, default=0)
    rows = keys.integer("vocab_size_per_layer_input", high=MAX_VOCABULARY, default=vocabulary)
    rank = keys.integer("laurel_rank", high=MAX_HIDDEN, default=0)
    inputs = keys.integer("altup_num_inputs", low=1, high=64, default=1)
    return layers * wide * (rows + 3 * hidden) + layers * 2 * rank * hidden + 2 * (inputs - 1) * hidden * hidden


def _positions(keys: Keys) -> int:
    names = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx")
    return keys.integer(*names, high=MAX_POSITION, default=0)


def _facts(keys: Keys, wrapping: Wrapping, gathered: tuple[_Ledger, _Sizes, tuple[AttentionPart | None, ...]]) -> ModelFacts:
    ledger, sizes, parts = gathered
    kinds = sizes.plan.kinds
    cached = {k: [p for p, kind in zip(parts, kinds, strict=True) if kind is k and p] for k in _ATTENDING}
    full, sliding = cached[LayerKind.FULL], cached[LayerKind.SLIDING]
    lead = next(iter(full or sliding), AttentionPart(1, 1, 1, 1, 0, 0, 0, 0))
    states = len(kinds) if sizes.plan.parallel_state else kinds.count(LayerKind.LINEAR)
    experts = sizes.feed.experts
    main = ledger.quantisation.of("routed_experts" if experts else "mlp", _MAIN)
    return ModelFacts(
        id=wrapping.model_id,
        source=keys.source,
        architecture=_architecture(keys),
        attention=_attention(lead, states),
        layers=kinds,
        hidden=sizes.hidden,
        heads=lead.heads,
        kv_heads=lead.kv_heads,
        head_dim=lead.head_dim,
        v_head_dim=lead.v_head_dim,
        vocabulary=sizes.vocabulary,
        intermediate=max(sizes.feed.dense_width, default=0),
        experts=experts.count if experts else 0,
        experts_per_token=experts.chosen if experts else 0,
        shared_experts=experts.shared if experts else 0,
        dtype=_dtype(keys),
        quantization=main.scheme,
        compute_precision=main.compute,
        max_position=_positions(keys),
        weights=ledger.weights(),
        kv_elements_per_token_full=sum(p.kv_elements for p in full),
        kv_elements_per_token_sliding=sum(p.kv_elements for p in sliding),
        kv_extra_bytes_per_token=sum(p.indexer_cache_bytes for p in full),
        sliding_window=keys.integer("sliding_window", "sliding_window_size", high=MAX_POSITION, default=0) if sliding else 0,
        state_bytes_per_sequence=states * sizes.recurrent.state_bytes if sizes.recurrent else 0,
        mtp_layers=keys.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", high=MAX_LAYERS, default=0),
        multimodal=wrapping.multimodal,
        kv_cache_dtype=ledger.quantisation.kv_dtype,
        tower_parameters=wrapping.tower_parameters,
        kv_heads_sliding=sliding[0].kv_heads if sliding and sliding[0].kv_heads != lead.kv_heads else 0,
        notes=_notes(keys, wrapping),
    )


_MAIN = ("model.layers.1000.mlp.experts.0.gate_proj", "model.layers.1000.mlp.gate_proj")
"""Stands for the bulk of the weights when the checkpoint's precision is named in one word."""


def _attention(lead: AttentionPart, states: int) -> Attention:
    if states:
        return Attention.HYBRID
    return Attention.MLA if lead.latent else Attention.GQA


def _architecture(keys: Keys) -> str:
    names = keys.texts("architectures")
    return names[0] if names else keys.text("model_type", default="unknown")


def _dtype(keys: Keys) -> str:
    """The dtype vLLM runs it in: 16-bit as given; fp32 checkpoints are cast to bfloat16."""
    name = keys.text("torch_dtype", "dtype", default="bfloat16").removeprefix("torch.")
    return name if name in {"bfloat16", "float16"} else "bfloat16"


def _notes(keys: Keys, wrapping: Wrapping) -> tuple[str, ...]:
    notes = []
    model_type = keys.text("model_type")
    if model_type not in FAMILIES:
        notes.append(f"`model_type` `{model_type[:40]}` is not one disaggc knows; sized from its keys as a Llama-like decoder")
    if wrapping.multimodal:
        notes.append(f"encoders add about {wrapping.tower_parameters / 1e9:.2f} B parameters, outside the totals")
    if keys.has("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"):
        notes.append("multi-token-prediction layers are outside the totals; vLLM loads them with `speculative-config` alone")
    if keys.has("index_topk"):
        notes.append("the sparse-attention indexer is in the total and outside the active parameters, as published")
    return tuple(notes)
