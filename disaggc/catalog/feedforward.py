"""What each decoder layer does after attention: a dense MLP, or routed and shared experts, by layer.

Reads keys of the config; knows nothing of attention or precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.config_keys import Keys
from disaggc.catalog.families import Family

MAX_WIDTH = 10_000_000
MAX_EXPERTS = 100_000
_EXPERTS = (
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "moe_num_experts",
    "moe_num_primary_experts",
    "n_experts",
)
_TOP_K = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_top_k", "moe_topk",
    "num_selected_experts", "top_k_experts", "experts_per_tok", "num_experts_per_topk",
)  # fmt: skip
_EXPERT_WIDTH = (
    "moe_intermediate_size",
    "expert_ffn_hidden_size",
    "moe_ffn_hidden_size",
    "expert_intermediate_size",
)
_WIDTH = ("intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim", "d_ff", "intermediate_dim")


@dataclass(frozen=True, slots=True)
class ExpertSet:
    """Experts of one layer. width: hidden width of one expert; shared_width: of all shared experts together."""

    count: int
    chosen: int
    width: int
    shared: int
    shared_width: int
    expert_bias: int
    """Bias parameters of one expert."""
    router: int
    """Router parameters: its matrix, its bias, a gate of the shared expert."""


@dataclass(frozen=True, slots=True)
class FeedForward:
    """All layers' feed-forward parts. dense_width: by layer, 0 = none; experts: None for a model without; sparse: by layer."""

    gated: bool
    bias: bool
    dense_width: tuple[int, ...]
    experts: ExpertSet | None
    sparse: tuple[bool, ...]

    def matrices(self) -> int:
        """Matrices of one MLP."""
        return 3 if self.gated else 2

    def bias_of(self, width: int, hidden: int) -> int:
        """Bias parameters of a dense MLP of that width."""
        return ((self.matrices() - 1) * width + hidden) if self.bias else 0


def read_feedforward(keys: Keys, family: Family, sizes: tuple[int, int]) -> FeedForward:
    """The feed-forward parts of a config; `sizes` is (hidden, layers)."""
    hidden, layers = sizes
    where = keys.section("ffn_config") or keys
    experts = where.integer(*_EXPERTS, high=MAX_EXPERTS, default=0)
    if isinstance(keys.raw.get("num_experts"), list):
        keys.refuse("`num_experts` is a list; models whose layers differ in experts cannot be sized")
    chosen_set = _experts(keys, where, (hidden, experts)) if experts > 1 else None
    sparse = _sparse_layers(keys, layers) if chosen_set else (False,) * layers
    gated = family.gated and keys.text("mlp_type", default="gated") != "plain"
    bias = keys.flag("mlp_bias", "use_bias", "bias", default=family.mlp_bias) and (
        family.mlp_bias or keys.has("mlp_bias")
    )
    dense = _dense_widths(where, (hidden, layers), sparse)
    return FeedForward(gated, bias, dense, chosen_set, sparse)


def _dense_widths(keys: Keys, sizes: tuple[int, int], sparse: tuple[bool, ...]) -> tuple[int, ...]:
    hidden, layers = sizes
    names = ("intermediate_size_mlp", "dense_intermediate_size", *_WIDTH)
    if keys.has(*names):
        widths = keys.per_layer(*names, layers=layers, high=MAX_WIDTH, default=1)
    elif keys.raw.get("n_inner", 0) is None or keys.has("n_embd", "d_model", "multi_query"):
        widths = (
            4 * hidden,
        ) * layers  # GPT-2, MPT and Falcon leave out a width of four times the hidden size
    elif all(sparse):
        widths = (0,) * layers
    else:
        keys.refuse("`intermediate_size` is missing, so the model cannot be sized")
        widths = (1,) * layers
    return tuple(0 if is_sparse else width for width, is_sparse in zip(widths, sparse, strict=True))


def _experts(keys: Keys, where: Keys, sizes: tuple[int, int]) -> ExpertSet:
    hidden, count = sizes
    chosen = where.required(*_TOP_K, high=MAX_EXPERTS)
    if chosen > count:
        keys.refuse(f"`num_experts_per_tok` is {chosen}, the model has {count} experts")
    width = where.integer(*_EXPERT_WIDTH, *_WIDTH, low=1, high=MAX_WIDTH, default=1)
    if not where.has(*_EXPERT_WIDTH, *_WIDTH):
        keys.refuse("`moe_intermediate_size` is missing, so the experts cannot be sized")
    shared, shared_width = _shared(keys, width)
    model_type = keys.text("model_type")
    router = hidden * count
    if (
        model_type == "gpt_oss"
        or keys.text("topk_method") == "noaux_tc"
        or keys.flag("use_routing_bias", default=False)
    ):
        router += count
    if keys.has("shared_expert_intermediate_size"):
        router += hidden  # Qwen's gate of the shared expert
    bias = 3 * width - width + hidden if model_type == "gpt_oss" else 0
    return ExpertSet(count, chosen, width, shared, shared_width, bias, router)


def _shared(keys: Keys, width: int) -> tuple[int, int]:
    """Number and total width of shared experts."""
    own = (
        "shared_expert_intermediate_size",
        "moe_shared_expert_intermediate_size",
        "shared_intermediate_size",
    )
    counts = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts", "num_shared_expert")
    if keys.text("model_type") == "llama4_text":
        return 1, width
    count = keys.integer(*counts, high=MAX_EXPERTS, default=0)
    if keys.has(*own):
        total = keys.integer(*own, high=MAX_WIDTH, default=0)
        return (max(count, 1), total * max(count, 1)) if total else (0, 0)
    return count, count * width


def _sparse_layers(keys: Keys, layers: int) -> tuple[bool, ...]:
    """Which layers have experts; every family says it in its own way."""
    first_dense = keys.integer("first_k_dense_replace", "num_dense_layers", high=100_000, default=0)
    dense_only = set(keys.integers("mlp_only_layers"))
    step = max(
        1,
        keys.integer(
            "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", high=100_000, default=1
        ),
    )
    named = keys.section("ffn_config") is None and keys.has("moe_layers")
    chosen = set(keys.integers("moe_layers")) if named else None
    phase = 0 if keys.has("moe_layer_freq") else 1
    return tuple(
        i in chosen
        if chosen is not None
        else i >= first_dense and i not in dense_only and (i + phase) % step == 0
        for i in range(layers)
    )
