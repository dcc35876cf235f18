"""What the catalog states about hardware and models: typed facts, each with its source. Holds no numbers itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Vendor = Literal["nvidia", "amd", "cpu"]
Precision = Literal["fp32", "bf16", "fp8", "fp4", "int8"]


@dataclass(frozen=True, slots=True)
class AcceleratorFacts:
    """One accelerator as the engine sees it (a GPU, or one GCD where a package shows two).

    memory_bytes: memory as the driver reports it. memory_bandwidth: bytes/s. peak_flops: dense FLOP/s by precision
    (absent = unsupported). link_domain: accelerators that one fast link domain joins (NVLink, xGMI; 1 = none).
    link_bytes_per_s: per accelerator, one direction.
    """

    id: str
    vendor: Vendor
    memory_bytes: float
    memory_bandwidth: float
    peak_flops: tuple[tuple[Precision, float], ...]
    link: str
    link_domain: int
    link_bytes_per_s: float
    source: str
    architecture: str = ""

    def flops(self, precision: Precision) -> float:
        """Dense peak in FLOP/s; where a precision is missing, that of the next wider floating-point one.

        Kernels for a narrow format that the hardware lacks unpack the weights and multiply in 16 bits, never in int8.
        """
        table = dict(self.peak_flops)
        wider: tuple[Precision, ...] = (
            ("bf16", "fp32") if precision == "int8" else ("fp4", "fp8", "bf16", "fp32")
        )
        start = wider.index(precision) if precision in wider else 0
        found = next((table[p] for p in wider[start:] if p in table), None)
        return table.get(precision) or found or next(iter(table.values()))


@dataclass(frozen=True, slots=True)
class FabricFacts:
    """A network between nodes. efficiency: (low, mid, high) share of line rate that KV transfer reaches."""

    type: str
    rdma: bool
    default_bytes_per_s: float
    latency_s: float
    efficiency: tuple[float, float, float]
    source: str


class Attention(StrEnum):
    """How a model keeps context."""

    GQA = "gqa"
    MLA = "mla"
    HYBRID = "hybrid"


class LayerKind(StrEnum):
    """What one decoder layer keeps per token."""

    FULL = "full"
    SLIDING = "sliding"
    LINEAR = "linear"
    """Recurrent: a fixed state for each sequence, nothing for each token."""
    NONE = "none"
    """No cache of its own: a layer without attention, or one that reads another layer's cache."""


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Parameters that share a precision and a way of being sharded.

    name: attention, attention_kv, attention_replicated, recurrent, routed_experts, shared_experts, mlp, embedding,
    head, router, norm, indexer.
    parameters: count in the whole model. bytes_per_parameter: with quantisation scales.
    sharding: tp (divided by TP), kv (divided by min(TP, kv_heads)), experts (divided by DP x TP), replicated.
    active: parameters that one token uses.
    """

    name: str
    parameters: int
    active: int
    bytes_per_parameter: float
    sharding: Literal["tp", "kv", "experts", "replicated"]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Everything the planner needs to know of a model, derived from its config.json.

    kv_bytes_per_token: whole model, at kv_dtype "auto" (the model's dtype), full-length layers and sliding layers both.
    sliding_window: tokens, 0 = none. state_bytes_per_sequence: recurrent state of linear layers.
    """

    id: str
    source: str
    architecture: str
    attention: Attention
    layers: tuple[LayerKind, ...]
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    vocabulary: int
    intermediate: int
    experts: int
    experts_per_token: int
    shared_experts: int
    dtype: str
    quantization: str
    """none, fp8, mxfp4, nvfp4, int4, ..."""
    compute_precision: Precision
    max_position: int
    weights: tuple[WeightGroup, ...]
    kv_elements_per_token_full: int
    """K and V elements one token adds in all full-attention layers together (MLA: latent + rope)."""
    kv_elements_per_token_sliding: int
    kv_extra_bytes_per_token: int
    """Bytes besides K and V, e.g. the sparse-attention indexer cache."""
    sliding_window: int
    state_bytes_per_sequence: int
    mtp_layers: int
    multimodal: bool
    kv_cache_dtype: str = "auto"
    """What `--kv-cache-dtype auto` becomes: fp8 where the checkpoint declares an fp8 cache."""
    packed_cache_entry: tuple[int, int] = (656, 576)
    """MLA: (bytes, elements) of one cache entry in vLLM's `fp8_ds_mla` layout, values with scales and rope."""
    tower_parameters: int = 0
    """Vision and audio encoders beside the decoder, estimated from their configs; not in `weights`."""
    absorbed_parameters: int = 0
    """MLA: the latent up-projection, of which vLLM keeps a second, 16-bit copy for decode; not in `weights`."""
    kv_heads_sliding: int = 0
    """Key-value heads of sliding-window layers where they differ; 0 = as `kv_heads`."""
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Total parameter count (without multi-token-prediction layers)."""
        return sum(group.parameters for group in self.weights)

    @property
    def active_parameters(self) -> int:
        """Parameters one token uses."""
        return sum(group.active for group in self.weights)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights in memory, unsharded: the decoder as quantised, encoders at two bytes a parameter."""
        return (
            sum(group.parameters * group.bytes_per_parameter for group in self.weights)
            + 2.0 * self.tower_parameters
        )

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of K and V one token adds in the whole model at the model's own 16-bit dtype, every layer counted."""
        return 2.0 * (self.kv_elements_per_token_full + self.kv_elements_per_token_sliding)

    @property
    def is_moe(self) -> bool:
        """Whether tokens choose among experts."""
        return self.experts > 0
