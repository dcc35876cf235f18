"""Adds up a decoder layer by layer: parameters by sharding and precision, cache bytes, recurrent state.

Joins what attention, feedforward, recurrent and quantisation read; reads no key that one of them owns.
"""

from __future__ import annotations

from disaggc.catalog.attention import AttentionReader
from disaggc.catalog.config_keys import Keys
from disaggc.catalog.facts import LayerKind, ModelFacts
from disaggc.catalog.families import Family, family_of
from disaggc.catalog.feedforward import FeedForward, read_feedforward
from disaggc.catalog.latent_attention import AttentionPart
from disaggc.catalog.layers import LayerPlan, read_layer_count, read_layers
from disaggc.catalog.ledger import Ledger
from disaggc.catalog.model_summary import Gathered, Wrapping, model_summary, read_positions
from disaggc.catalog.quantisation import Format, read_quantisation
from disaggc.catalog.recurrent import RecurrentPart, read_recurrent

MAX_HIDDEN = 1_000_000
MAX_VOCABULARY = 100_000_000
_ATTENDING = frozenset({LayerKind.FULL, LayerKind.SLIDING})


def decoder_facts(keys: Keys, wrapping: Wrapping) -> ModelFacts:
    """The facts of the language model whose keys these are; problems are noted on the keys."""
    family = family_of(keys.text("model_type"))
    hidden = keys.required("hidden_size", "n_embd", "n_embed", "d_model", "dim", "model_dim", high=MAX_HIDDEN)
    count = read_layer_count(keys)
    vocabulary = keys.required("vocab_size", "padded_vocab_size", high=MAX_VOCABULARY)
    quantisation = read_quantisation(keys, Format("none", 2.0, "bf16"))
    plan = read_layers(keys, family, count)
    feed = read_feedforward(keys, family, (hidden, plan))
    has_state = plan.parallel_state or LayerKind.LINEAR in plan.kinds
    recurrent = read_recurrent(keys, family, hidden) if has_state else None
    if recurrent is None and LayerKind.LINEAR in plan.kinds:
        keys.refuse("some layers are recurrent, but no key gives the size of their state")
    reader = AttentionReader(keys, family, hidden, count)
    parts = tuple(reader.at(i, kind) if kind in _ATTENDING else None for i, kind in enumerate(plan.attends))
    ledger = Ledger(quantisation)
    for index, kind in enumerate(plan.kinds):
        _add_mixer(ledger, (index, kind, plan), (parts[index], recurrent))
        _add_feedforward(ledger, feed, (index, hidden))
        norms = family.norms * hidden * (1 + family.norm_bias)
        ledger.add("norm", "replicated", norms).named()
    _add_ends(ledger, keys, (family, hidden, vocabulary))
    return model_summary(keys, wrapping, Gathered(ledger, hidden, vocabulary, plan, feed, recurrent, parts))


def _add_mixer(
    ledger: Ledger,
    place: tuple[int, LayerKind, LayerPlan],
    parts: tuple[AttentionPart | None, RecurrentPart | None],
) -> None:
    index, kind, plan = place
    attention, recurrent = parts
    if recurrent is not None and (kind is LayerKind.LINEAR or plan.parallel_state):
        names = (f"model.layers.{index}.mamba.in_proj", f"model.layers.{index}.linear_attn.in_proj_qkvz")
        ledger.add("recurrent", "tp", recurrent.parameters).named(*names)
    if attention is None:
        return
    here = f"model.layers.{index}.self_attn"
    ledger.add("attention", "tp", attention.sharded).named(
        f"{here}.o_proj", f"{here}.q_proj", f"{here}.q_b_proj"
    )
    # A layer that reads another's cache has no key and value projections.
    ledger.add("attention_kv", "kv", 0 if kind is LayerKind.NONE else attention.kv).named(f"{here}.k_proj")
    group = "attention_replicated" if attention.latent else "norm"
    latent = (f"{here}.q_a_proj", f"{here}.kv_a_proj_with_mqa")
    ledger.add(group, "replicated", attention.replicated).named(*latent)
    # Published counts of active parameters leave the indexer out, and so does this one.
    ledger.add("indexer", "replicated", attention.indexer).named(f"{here}.indexer.wq_b", used=(0, 1))


def _add_feedforward(ledger: Ledger, feed: FeedForward, place: tuple[int, int]) -> None:
    index, hidden = place
    here = f"model.layers.{index}.mlp"
    ledger.add("mlp", "tp", feed.dense_parameters(index, hidden)).named(
        f"{here}.gate_proj", f"{here}.down_proj"
    )
    experts = feed.experts
    if experts is None or not feed.sparse[index]:
        return
    one = feed.matrices * experts.hidden * experts.width + experts.expert_bias
    sparse = f"model.layers.{index}.block_sparse_moe.experts"
    names = (f"{here}.experts.0.gate_proj", f"{sparse}.0.w1", f"{here}.experts")
    used = (experts.chosen, experts.count)
    ledger.add("routed_experts", "experts", one * experts.count).named(*names, used=used)
    shared = (f"{here}.shared_experts.gate_proj", f"{here}.shared_expert.gate_proj")
    width = feed.matrices * hidden * experts.shared_width + experts.extra
    ledger.add("shared_experts", "tp", width).named(*shared)
    ledger.add("router", "replicated", experts.router).named()


def _add_ends(ledger: Ledger, keys: Keys, place: tuple[Family, int, int]) -> None:
    family, hidden, vocabulary = place
    wide = keys.integer("word_embed_proj_dim", low=1, high=MAX_HIDDEN, default=hidden)
    ledger.add("norm", "replicated", hidden * (1 + family.norm_bias)).named()
    positions = read_positions(keys) * hidden if family.learned_positions else 0
    ledger.add("embedding", "tp", _layer_inputs(keys, (hidden, vocabulary))).named()
    ledger.add("embedding", "tp", vocabulary * wide + (2 * wide * hidden if wide != hidden else 0)).named()
    ledger.add("embedding", "replicated", positions).named()
    if not keys.flag("tie_word_embeddings", default=family.tied):
        ledger.add("head", "tp", vocabulary * hidden).named("lm_head")


def _layer_inputs(keys: Keys, sizes: tuple[int, int]) -> int:
    """Gemma 3n and 4 E-models: an embedding for each layer, its projections, and low-rank side paths."""
    hidden, vocabulary = sizes
    layers = read_layer_count(keys)
    wide = keys.integer("hidden_size_per_layer_input", high=MAX_HIDDEN, default=0)
    rows = keys.integer("vocab_size_per_layer_input", high=MAX_VOCABULARY, default=vocabulary)
    rank = keys.integer("laurel_rank", high=MAX_HIDDEN, default=0)
    inputs = keys.integer("altup_num_inputs", low=1, high=64, default=1)
    mixing = 2 * (inputs - 1) * hidden * hidden
    return layers * wide * (rows + 3 * hidden) + layers * 2 * rank * hidden + mixing
