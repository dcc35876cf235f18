"""What each decoder layer does after attention: a dense MLP, or routed and shared experts, by layer.

Reads keys of the config; knows nothing of attention or precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.config_keys import Keys
from disaggc.catalog.families import Family
from disaggc.catalog.layers import LayerPlan

MAX_WIDTH = 10_000_000
MAX_EXPERTS = 100_000
_HIGH = 1_000_000
_EXPERTS = (
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "moe_num_experts",
    "n_experts",
    "num_routed_experts",
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
_DENSE_WIDTH = ("intermediate_size_mlp", "dense_intermediate_size", "mlp_intermediate_size")


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
    hidden: int
    """Input width of an expert: the model's, or that of a latent space before it (Nemotron 3)."""
    extra: int
    """Parameters around the experts: the projections into and out of that latent space."""


@dataclass(frozen=True, slots=True)
class FeedForward:
    """All layers' feed-forward parts; dense_width (0 = none) and sparse by layer, experts None for a model without."""

    matrices: int
    bias: bool
    dense_width: tuple[int, ...]
    experts: ExpertSet | None
    sparse: tuple[bool, ...]

    def dense_parameters(self, index: int, hidden: int) -> int:
        """Parameters of the dense MLP of a layer."""
        width = self.dense_width[index]
        bias = ((self.matrices - 1) * width + hidden) if self.bias and width else 0
        return self.matrices * hidden * width + bias


def read_feedforward(keys: Keys, family: Family, place: tuple[int, LayerPlan]) -> FeedForward:
    """The feed-forward parts of a config; `place` is the hidden size and the layers."""
    hidden, plan = place
    where = keys.section("ffn_config") or keys
    count = where.integer(*_EXPERTS, high=MAX_EXPERTS, default=0)
    experts = _experts(keys, where, (hidden, count, family)) if count > 1 else None
    layers = len(plan.kinds)
    sparse = (plan.experts or _sparse_layers(keys, layers)) if experts else (False,) * layers
    dense = _dense_widths(where, (hidden, layers, any(plan.feeds)), sparse)
    # Gemma 4 and LongCat have a dense MLP next to the experts.
    beside = keys.flag("enable_moe_block", default=keys.text("model_type") == "longcat_flash")
    wider = 2 if keys.flag("use_double_wide_mlp", default=False) else 1  # in layers that read another's cache
    widths = tuple(
        0 if (moe and not beside) or not fed else width * (wider if cached is not attends else 1)
        for width, moe, fed, cached, attends in zip(
            dense, sparse, plan.feeds, plan.kinds, plan.attends, strict=True
        )
    )
    names = ("mlp_bias", "use_bias", "bias", "add_bias_linear", "use_mlp_bias")
    bias = (
        keys.flag(*names, default=family.mlp_bias)
        if family.mlp_bias or keys.has("mlp_bias", "use_mlp_bias")
        else False
    )
    sparse = tuple(moe and fed for moe, fed in zip(sparse, plan.feeds, strict=True))
    return FeedForward(3 if family.gated else 2, bias, widths, experts, sparse)


def _dense_widths(keys: Keys, sizes: tuple[int, int, bool], sparse: tuple[bool, ...]) -> tuple[int, ...]:
    hidden, layers, fed = sizes
    classic = keys.text("model_type") == "bloom"
    names = (*_DENSE_WIDTH, *_WIDTH)
    if keys.text("model_type") == "granitemoehybrid" and not any(sparse):
        return keys.per_layer("shared_intermediate_size", layers=layers, high=MAX_WIDTH, default=1)
    if keys.has(*names):
        widths = keys.per_layer(*names, layers=layers, high=MAX_WIDTH, default=1)
        return tuple(w // 2 for w in widths) if keys.text("model_type") == "qwen" else _adjusted(keys, widths)
    if keys.has("expansion_ratio"):
        return (int(keys.number("expansion_ratio", default=4) * hidden),) * layers
    if (
        "n_inner" in keys.raw
        or keys.has("n_embd", "d_model", "multi_query", "alibi", "attention_types")
        or classic
    ):
        return (
            4 * hidden,
        ) * layers  # GPT-2, BLOOM, MPT and Falcon leave out a width of four times the hidden size
    if all(sparse) or not fed:
        return (0,) * layers
    keys.refuse("`intermediate_size` is missing, so the model cannot be sized")
    return (1,) * layers


def _adjusted(keys: Keys, widths: tuple[int, ...]) -> tuple[int, ...]:
    """LFM2 takes two thirds of the stated width and rounds up to a multiple."""
    if keys.text("model_type") != "lfm2" or not keys.flag("block_auto_adjust_ff_dim", default=True):
        return widths
    multiple = keys.integer("block_multiple_of", low=1, high=MAX_WIDTH, default=256)
    factor = keys.number("block_ffn_dim_multiplier", default=1.0)
    return tuple(-(-int(factor * int(2 * w / 3)) // multiple) * multiple for w in widths)


def _experts(keys: Keys, where: Keys, place: tuple[int, int, Family]) -> ExpertSet:
    hidden, count, family = place
    chosen = where.required(*_TOP_K, high=MAX_EXPERTS)
    if chosen > count:
        keys.refuse(f"`num_experts_per_tok` is {chosen}, the model has {count} experts")
    if not where.has(*_EXPERT_WIDTH, *_WIDTH):
        keys.refuse("`moe_intermediate_size` is missing, so the experts cannot be sized")
    width = where.integer(*_EXPERT_WIDTH, *_WIDTH, low=1, high=MAX_WIDTH, default=1)
    shared, shared_width = _shared(keys, width)
    oss = keys.text("model_type") == "gpt_oss"
    router = hidden * (count + keys.integer("zero_expert_num", high=MAX_EXPERTS, default=0))
    corrected = keys.text("topk_method") == "noaux_tc" or keys.flag(
        "use_routing_bias", "moe_router_enable_expert_bias", default=False
    )
    if oss or corrected:
        router += count
    if keys.has("shared_expert_intermediate_size") and keys.text("model_type").startswith("qwen"):
        router += hidden  # Qwen's gate of the shared expert
    latent = keys.integer("moe_latent_size", high=MAX_WIDTH, default=0)
    bias = (2 * width + hidden) if oss or (family.mlp_bias and oss) else 0
    extra = 2 * hidden * latent
    return ExpertSet(count, chosen, width, shared, shared_width, bias, router, latent or hidden, extra)


def _shared(keys: Keys, width: int) -> tuple[int, int]:
    """Number and total width of shared experts."""
    if keys.text("model_type") == "llama4_text":
        return 1, width
    total = ("shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim")
    each = ("moe_shared_expert_intermediate_size",)
    counts = (
        "n_shared_experts",
        "num_shared_experts",
        "moe_num_shared_experts",
        "num_shared_expert",
        "n_shared_expert",
    )
    count = keys.integer(*counts, high=MAX_EXPERTS, default=0)
    if keys.has(*each):
        size = keys.integer(*each, high=MAX_WIDTH, default=0)
        return max(count, 1), size * max(count, 1)
    if keys.has(*total):
        size = keys.integer(*total, high=MAX_WIDTH, default=0)
        return (max(count, 1), size) if size else (0, 0)
    return count, count * width


def _sparse_layers(keys: Keys, layers: int) -> tuple[bool, ...]:
    """Which layers have experts; every family says it in its own way."""
    named = keys.texts("mlp_layer_types")
    if named:
        return tuple(i < len(named) and named[i] == "sparse" for i in range(layers))
    for key in ("moe_layers", "moe_layer_freq", "is_moe_layer", "moe_layers_enum"):
        value = keys.raw.get(key)
        if isinstance(value, list):
            return _listed(value, layers)
        if isinstance(value, str):
            return _listed([int(n) for n in value.split(",") if n.strip().isdigit() and len(n) < 8], layers)
    if keys.has("expert_layer_period"):
        period = keys.integer("expert_layer_period", low=1, high=_HIGH, default=1)
        offset = keys.integer("expert_layer_offset", high=_HIGH, default=0)
        return tuple(i % period == offset for i in range(layers))
    first = keys.integer(
        "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", high=_HIGH, default=0
    )
    last = keys.integer("moe_layer_end_index", low=-1, high=_HIGH, default=-1)
    last = layers - 1 if last < 0 else last
    dense_only = set(keys.integers("mlp_only_layers"))
    phase = 0 if keys.has("moe_layer_freq") else 1
    names = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "moe_layer_interval")
    step = keys.integer(*names, high=_HIGH, default=2 if keys.text("model_type") == "longcat_flash" else 1)
    return tuple(
        first <= i <= last and i not in dense_only and step > 0 and (i + phase) % step == 0
        for i in range(layers)
    )


def _listed(value: list[object], layers: int) -> tuple[bool, ...]:
    """A list of layer numbers, or of one mark for each layer."""
    if len(value) == layers and all(mark in {0, 1} for mark in value if isinstance(mark, int)):
        return tuple(bool(mark) for mark in value)
    places = {place for place in value if isinstance(place, int)}
    return tuple(i in places for i in range(layers))
