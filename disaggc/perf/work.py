"""What one token and one step of a model ask of one accelerator under a shape, from facts alone: bytes, FLOP, messages.

Knows no share of peak and no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from disaggc.catalog.facts import Attention, LayerKind, ModelFacts, WeightGroup
from disaggc.catalog.sizing import kv_bytes_per_rank, kv_bytes_per_token, latent_cache
from disaggc.ir.plan import Shape
from disaggc.resolve.model import NodeGroupFacts

_ACTIVATION_BYTES = 2.0
_ALL_REDUCES_PER_LAYER = 2
_SHARING_COLLECTIVES_PER_LAYER = 3
"""Of ranks that share KV by tokens: queries gathered, softmax sums gathered, outputs reduced and scattered."""
_SUM_BYTES = 4.0
"""One softmax sum (fp32) of one head."""
_LARGEST_BOARD = 16
"""Accelerators on the largest board of one node; a larger link domain is a rack's and crosses nodes (NVL72)."""
_KERNELS = {"layer": 8, "mla": 4, "experts": 6, "linear": 3}
"""Small kernels a decoder layer launches, by what it contains; counted in profiles of fused decode graphs."""


class Served(Protocol):
    """A model and the bytes of KV a token takes in it: what a service has, and a benchmark without one."""

    @property
    def model(self) -> ModelFacts:
        """Its facts."""

    @property
    def kv_bytes_per_token_full(self) -> float:
        """In full-attention layers, whole model."""

    @property
    def kv_bytes_per_token_sliding(self) -> float:
        """In sliding-window layers, whole model."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """Decode steps of ranks that share a sequence's KV by tokens; all zero where none do.

    collectives: in one step, all layers. link_bytes: per sequence and step that one accelerator receives. link_speed:
    bytes/s.
    """

    collectives: int
    link_bytes: float
    link_speed: float


@dataclass(frozen=True, slots=True)
class Work:
    """What one token and one step ask of one accelerator of the replica, from facts alone.

    tp: accelerators that share one sequence. ranks: data-parallel ranks. Bytes are per accelerator and step; FLOP and
    link bytes per token on one accelerator. square_flops: per squared prompt token. sharing: what ranks that share KV
    by tokens (dcp) exchange in each decode step.
    """

    tp: int
    pp: int
    ranks: int
    dense_bytes: float
    expert_bytes: float
    expert_share: float
    dense_flops: float
    expert_flops: float
    context_bytes: float
    sliding_bytes: float
    sliding_window: int
    state_bytes: float
    context_flops: float
    square_flops: float
    window_flops: float
    link_bytes: float
    all2all_bytes: float
    kernels: float
    collectives: float
    all2alls: float
    sharing: Sharing
    link_speed: float
    all2all_speed: float
    bandwidth: float
    peak: float
    attention_peak: float


def work_of(service: Served, group: NodeGroupFacts, shape: Shape) -> Work:
    """Adds up a model under a shape on one node group's accelerators."""
    model, accelerator = service.model, group.accelerator
    tp, ranks = shape.tp, shape.dp
    tied = all(g.name != "head" for g in model.weights)
    dense = [g for g in model.weights if g.sharding != "experts" and (tied or g.name != "embedding")]
    experts = [g for g in model.weights if g.sharding == "experts"]
    full, sliding = _layer_counts(model)
    full_share, sliding_share = kv_shares(model, Shape(tp=tp, dp=shape.dp, ep=shape.ep, dcp=shape.dcp))
    spread = tp * ranks
    all2alls = 2 * len(model.layers) if model.is_moe and ranks > 1 else 0
    reduces = _ALL_REDUCES_PER_LAYER * len(model.layers) if tp > 1 else 0
    reduced = model.hidden * _ACTIVATION_BYTES * 2 * (tp - 1) / tp
    routed = model.hidden * max(model.experts_per_token, 1) * 1.5 * _ACTIVATION_BYTES * (spread - 1) / spread
    return Work(
        tp=tp,
        pp=shape.pp,
        ranks=ranks,
        dense_bytes=sum(_on_one_rank(g, model, tp) * g.bytes_per_parameter for g in dense),
        expert_bytes=sum(g.parameters * g.bytes_per_parameter for g in experts) / spread,
        expert_share=model.experts_per_token / model.experts if model.experts else 0.0,
        dense_flops=2 * sum(_on_one_rank(g, model, tp) for g in dense),
        expert_flops=2 * sum(g.active for g in experts) / tp,
        context_bytes=service.kv_bytes_per_token_full * full_share,
        sliding_bytes=service.kv_bytes_per_token_sliding * sliding_share,
        sliding_window=model.sliding_window,
        state_bytes=2 * model.state_bytes_per_sequence / tp,
        context_flops=_context_flops(model, full) / tp,
        square_flops=model.heads * (model.head_dim + model.v_head_dim) * full / tp,
        window_flops=2 * model.heads * (model.head_dim + model.v_head_dim) * sliding / tp,
        link_bytes=reduced * reduces,
        all2all_bytes=routed / tp * len(model.layers) if all2alls else 0.0,
        kernels=_kernels(model),
        collectives=reduces,
        all2alls=all2alls,
        sharing=_sharing(model, group, shape),
        link_speed=_group_speed(group, tp),
        all2all_speed=_group_speed(group, spread),
        bandwidth=accelerator.memory_bandwidth,
        peak=accelerator.flops(model.compute_precision),
        attention_peak=accelerator.flops("bf16"),
    )


def kv_shares(model: ModelFacts, shape: Shape) -> tuple[float, float]:
    """(full, sliding) share of a token's KV that one accelerator keeps; MLA and few KV heads replicate."""
    whole, here = kv_bytes_per_token(model, "auto"), kv_bytes_per_rank(model, shape, "auto")
    full, sliding = (part / all_ if all_ else 1.0 for part, all_ in zip(here, whole, strict=True))
    return full, sliding


def _sharing(model: ModelFacts, group: NodeGroupFacts, shape: Shape) -> Sharing:
    """Every rank computes the heads of all its `dcp` peers over its own tokens: queries come in, outputs go back.

    With a latent cache both are as wide as a cache entry (the outputs less its rope part, 576 and 512 in DeepSeek-R1;
    counted alike). A prompt attends to its own tokens before they are shared out, so only what it had cached or had
    computed in an earlier chunk is exchanged: left out, as it is 0.9 % of DeepSeek-R1's time
    on H200 for 65,536 tokens in chunks of 8,192. vLLM 0.32 v1/attention/ops/dcp.py, its default (ag_rs).
    """
    full, _ = _layer_counts(model)
    dcp = shape.dcp
    if dcp == 1 or not full:
        return Sharing(0, 0.0, 0.0)
    widths = model.head_dim + model.v_head_dim
    if latent_cache(model):
        widths = 2 * model.kv_elements_per_token_full // full
    heads = model.heads / shape.tp
    received = (dcp - 1) * heads * (widths * _ACTIVATION_BYTES + dcp * _SUM_BYTES)
    return Sharing(_SHARING_COLLECTIVES_PER_LAYER * full, received * full, _group_speed(group, dcp))


def _layer_counts(model: ModelFacts) -> tuple[int, int]:
    return model.layers.count(LayerKind.FULL), model.layers.count(LayerKind.SLIDING)


def _on_one_rank(group: WeightGroup, model: ModelFacts, tp: int) -> float:
    match group.sharding:
        case "replicated":
            return float(group.parameters)
        case "kv":
            return group.parameters / min(tp, model.kv_heads)
        case _:
            return group.parameters / tp


def _context_flops(model: ModelFacts, full: int) -> float:
    """FLOP one query token spends on one context token, all heads; MLA works on the shared latent in decode."""
    if model.attention is Attention.MLA:
        return 4.0 * model.heads * model.kv_elements_per_token_full
    return 2.0 * model.heads * (model.head_dim + model.v_head_dim) * full


def _kernels(model: ModelFacts) -> float:
    linear = model.layers.count(LayerKind.LINEAR)
    each = _KERNELS["layer"] + (_KERNELS["experts"] if model.is_moe else 0)
    each += _KERNELS["mla"] if model.attention is Attention.MLA else 0
    return each * len(model.layers) + _KERNELS["linear"] * linear


def _group_speed(group: NodeGroupFacts, members: int) -> float:
    """Bytes/s one accelerator moves to its group: over the link inside a domain, else its share of the NICs."""
    if members <= linked_accelerators(group):
        return group.accelerator.link_bytes_per_s
    if members <= group.per_node:
        return group.accelerator.link_bytes_per_s / 2  # through the host: PCIe both ways
    return nic_speed_per_accelerator(group)


def linked_accelerators(group: NodeGroupFacts) -> int:
    """Accelerators that one fast link domain joins here: a node's, or a rack's where the link leaves the node."""
    domain = group.accelerator.link_domain
    return domain if domain > _LARGEST_BOARD else max(1, min(domain, group.per_node))


def nic_speed_per_accelerator(group: NodeGroupFacts) -> float:
    """Line rate of the NICs one accelerator can count on, bytes/s."""
    return group.nic_bytes_per_s * max(group.nics, 1) / group.per_node
