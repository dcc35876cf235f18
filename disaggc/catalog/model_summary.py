"""What was read of a decoder, layer by layer, told as ModelFacts: totals, cache sizes, names, notes.

Knows the shape of the answer; leaves every count to the modules that read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.compressed_attention import PACKED_ENTRY
from disaggc.catalog.config_keys import Keys
from disaggc.catalog.facts import Attention, LayerKind, ModelFacts
from disaggc.catalog.families import FAMILIES
from disaggc.catalog.feedforward import FeedForward
from disaggc.catalog.latent_attention import AttentionPart
from disaggc.catalog.layers import LayerPlan
from disaggc.catalog.ledger import Ledger
from disaggc.catalog.recurrent import RecurrentPart

_MAX_LAYERS = 2_000
_MAX_POSITION = 10**10
_MTP = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_sequence_length",
    "n_ctx",
)
_NO_ATTENTION = AttentionPart(1, 1, 1, 1, 0, 0, 0, 0)
_BULK = ("model.layers.1000.mlp.experts.0.gate_proj", "model.layers.1000.mlp.gate_proj")
"""Stands for most of the weights when a checkpoint's precision is told in one word."""


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What surrounds the decoder in its config: the name it goes by and the encoders beside it."""

    model_id: str
    multimodal: bool
    tower_parameters: int


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything read of one decoder; parts has one entry for each layer, None where it does not attend."""

    ledger: Ledger
    hidden: int
    vocabulary: int
    plan: LayerPlan
    feed: FeedForward
    recurrent: RecurrentPart | None
    parts: tuple[AttentionPart | None, ...]

    def cached(self, kind: LayerKind) -> list[AttentionPart]:
        """Attention of the layers of that kind which keep a cache."""
        return [p for p, k in zip(self.parts, self.plan.kinds, strict=True) if k is kind and p is not None]

    @property
    def states(self) -> int:
        """Layers with a recurrent state."""
        kinds = self.plan.kinds
        return len(kinds) if self.plan.parallel_state else kinds.count(LayerKind.LINEAR)


def model_summary(keys: Keys, wrapping: Wrapping, read: Gathered) -> ModelFacts:
    """The facts, with the first full-attention layer's heads standing for the model's."""
    full, sliding = read.cached(LayerKind.FULL), read.cached(LayerKind.SLIDING)
    lead = next(iter(full or sliding), _NO_ATTENTION)
    experts = read.feed.experts
    part, module = ("routed_experts", _BULK[0]) if experts else ("mlp", _BULK[1])
    bulk = read.ledger.quantisation.of(part, (module,))
    window = keys.integer("sliding_window", "sliding_window_size", low=-1, high=_MAX_POSITION, default=0)
    return ModelFacts(
        id=wrapping.model_id,
        source=keys.source,
        architecture=_architecture(keys),
        attention=_attention(lead, read.states),
        layers=read.plan.kinds,
        hidden=read.hidden,
        heads=lead.heads,
        kv_heads=lead.kv_heads,
        head_dim=lead.head_dim,
        v_head_dim=lead.v_head_dim,
        vocabulary=read.vocabulary,
        intermediate=max(read.feed.dense_width, default=0),
        experts=experts.count if experts else 0,
        experts_per_token=experts.chosen if experts else 0,
        shared_experts=experts.shared if experts else 0,
        dtype=_dtype(keys),
        quantization=bulk.scheme,
        compute_precision=bulk.compute,
        max_position=read_positions(keys),
        weights=read.ledger.weights(),
        kv_elements_per_token_full=sum(p.kv_elements for p in full),
        kv_elements_per_token_sliding=sum(p.kv_elements for p in sliding)
        + sum(p.window_elements for p in full),
        kv_extra_bytes_per_token=sum(p.indexer_cache_bytes for p in full),
        sliding_window=window if sliding or lead.window_elements else 0,
        state_bytes_per_sequence=read.states * read.recurrent.state_bytes if read.recurrent else 0,
        mtp_layers=keys.integer(*_MTP, high=_MAX_LAYERS, default=0),
        multimodal=wrapping.multimodal,
        kv_cache_dtype="fp8_ds_mla" if lead.window_elements else read.ledger.quantisation.kv_dtype,
        packed_cache_entry=PACKED_ENTRY if lead.window_elements else (656, 576),
        tower_parameters=wrapping.tower_parameters,
        absorbed_parameters=sum(p.absorbed for p in full),
        kv_heads_sliding=sliding[0].kv_heads if sliding and sliding[0].kv_heads != lead.kv_heads else 0,
        notes=_notes(keys, wrapping),
    )


def read_positions(keys: Keys) -> int:
    """The longest sequence the config allows, tokens; 0 = it does not say."""
    return keys.integer(*_POSITIONS, high=_MAX_POSITION, default=0)


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
        notes.append(
            f"`model_type` `{model_type[:40]}` is not one disaggc knows; sized from its keys like a Llama"
        )
    if wrapping.multimodal:
        notes.append(
            f"encoders add about {wrapping.tower_parameters / 1e9:.2f} B parameters, outside the totals"
        )
    if keys.has(*_MTP):
        notes.append(
            "multi-token-prediction layers are outside the totals; vLLM loads them for speculation alone"
        )
    if keys.has("index_topk"):
        notes.append(
            "the sparse-attention indexer is in the total, not in the active parameters, as published"
        )
    return tuple(notes)
