"""Layers that keep a fixed state instead of a growing cache: Mamba, delta nets, short convolutions, linear attention.

Reads keys of the config; knows nothing of the layers around it.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.config_keys import Keys
from disaggc.catalog.families import Family

_HIGH = 10_000_000
_STATE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "auto": 0}


@dataclass(frozen=True, slots=True)
class RecurrentPart:
    """One recurrent layer: parameters, and bytes of state one sequence keeps in it (convolution and recurrence)."""

    parameters: int
    state_bytes: int


def read_recurrent(keys: Keys, family: Family, hidden: int) -> RecurrentPart | None:
    """The recurrent layer a config describes; None where it names none."""
    model_type = keys.text("model_type")
    part: RecurrentPart | None = None
    if keys.has("linear_num_value_heads"):
        part = _delta_net(keys, hidden)
    elif keys.has("linear_attn_config", "linear_num_heads"):
        part = _delta_attention(keys, hidden)
    elif keys.has("conv_L_cache"):
        part = _short_convolution(keys, hidden)
    elif keys.has("mamba_n_heads", "mamba_num_heads") or model_type == "mamba2":
        part = _mamba2(keys, hidden)
    elif keys.has("mamba_d_state") or model_type in {"mamba", "falcon_mamba"}:
        part = _mamba1(keys, hidden)
    elif model_type in {"minimax", "minimax_text_01", "minimax_m1"} or keys.has("attn_type_list"):
        part = _lightning(keys, family, hidden)
    return part


def _state(keys: Keys, *, default: int = 2) -> int:
    """Bytes of one element of recurrent state: as the config wishes, else the model's own."""
    wished = keys.text("mamba_ssm_dtype", "mamba_ssm_cache_dtype", default="auto")
    return _STATE_BYTES.get(wished, 0) or default


def _size(keys: Keys, *names: str, default: int = 0) -> int:
    if default == 0:
        return keys.required(*names, high=_HIGH)
    return keys.integer(*names, low=1, high=_HIGH, default=default)


def _delta_net(keys: Keys, hidden: int) -> RecurrentPart:
    """Gated delta net (Qwen3-Next, Qwen3.5): one key-value matrix for each value head."""
    key_heads, key_dim = _size(keys, "linear_num_key_heads"), _size(keys, "linear_key_head_dim")
    value_heads, value_dim = _size(keys, "linear_num_value_heads"), _size(keys, "linear_value_head_dim")
    kernel = _size(keys, "linear_conv_kernel_dim", default=4)
    keys_wide, values_wide = key_heads * key_dim, value_heads * value_dim
    conv = 2 * keys_wide + values_wide
    projections = hidden * (2 * keys_wide + 2 * values_wide + 2 * value_heads) + values_wide * hidden
    parameters = projections + conv * kernel + 2 * value_heads + value_dim
    state = value_heads * key_dim * value_dim * _state(keys) + conv * (kernel - 1) * 2
    return RecurrentPart(parameters, state)


def _delta_attention(keys: Keys, hidden: int) -> RecurrentPart:
    """Kimi delta attention: as a gated delta net, with low-rank gates and three short convolutions."""
    inner = keys.section("linear_attn_config")
    names = ("num_heads", "head_dim") if inner else ("linear_num_heads", "linear_head_dim")
    source = inner or keys
    heads, dim = _size(source, names[0]), _size(source, names[1])
    kernel = _size(source, "short_conv_kernel_size", "linear_conv_kernel_dim", default=4)
    wide = heads * dim
    parameters = (
        hidden * 4 * wide
        + 3 * wide * kernel
        + 2 * (hidden * dim + dim * wide)
        + hidden * heads
        + heads
        + wide
        + dim
    )
    return RecurrentPart(
        parameters, heads * dim * dim * _state(keys, default=4) + 3 * wide * (kernel - 1) * 2
    )


def _short_convolution(keys: Keys, hidden: int) -> RecurrentPart:
    """LFM2: a gated convolution over a few tokens."""
    kernel = _size(keys, "conv_L_cache")
    wide = keys.integer("conv_dim", low=1, high=_HIGH, default=hidden)
    return RecurrentPart(hidden * 3 * wide + wide * kernel + wide * hidden, wide * (kernel - 1) * 2)


def _mamba1(keys: Keys, hidden: int) -> RecurrentPart:
    """Mamba: one state vector for each channel."""
    expanded = _size(keys, "mamba_expand", "expand", default=2) * hidden
    name = "intermediate_size" if keys.text("model_type").endswith("mamba") else "mamba_d_inner"
    wide = keys.integer(name, low=1, high=_HIGH, default=expanded)
    states = _size(keys, "mamba_d_state", "state_size", default=16)
    kernel = _size(keys, "mamba_d_conv", "conv_kernel", default=4)
    rank = keys.raw.get("mamba_dt_rank", keys.raw.get("time_step_rank"))
    steps = (
        rank
        if isinstance(rank, int) and not isinstance(rank, bool) and 0 < rank < _HIGH
        else -(-hidden // 16)
    )
    bias = keys.flag("mamba_conv_bias", "use_conv_bias", default=True)
    parameters = (
        hidden * 2 * wide + wide * (kernel + bias) + wide * (steps + 2 * states) + steps * wide + wide
    )
    parameters += wide * states + wide + wide * hidden
    if keys.text("model_type") == "jamba":
        parameters += steps + 2 * states
    return RecurrentPart(parameters, wide * states * _state(keys) + wide * (kernel - 1) * 2)


def _mamba2(keys: Keys, hidden: int) -> RecurrentPart:
    """Mamba 2: one state matrix for each head."""
    heads = _size(keys, "mamba_n_heads", "mamba_num_heads", "num_heads")
    expanded = _size(keys, "mamba_expand", "expand", default=2) * hidden
    dim = keys.raw.get("mamba_d_head", keys.raw.get("mamba_head_dim", keys.raw.get("head_dim")))
    known = isinstance(dim, int) and not isinstance(dim, bool) and 0 < dim < _HIGH
    wide = heads * dim if known and isinstance(dim, int) else expanded
    wide = keys.integer("mamba_d_ssm", low=1, high=_HIGH, default=wide)
    groups = _size(keys, "mamba_n_groups", "n_groups", default=1)
    states = _size(keys, "mamba_d_state", "ssm_state_size", "state_size", default=128)
    kernel = _size(keys, "mamba_d_conv", "conv_kernel", default=4)
    bias = keys.flag("mamba_conv_bias", "use_conv_bias", default=True)
    conv = wide + 2 * groups * states
    parameters = hidden * (wide + conv + heads) + conv * (kernel + bias) + 3 * heads + wide + wide * hidden
    return RecurrentPart(parameters, wide * states * _state(keys) + conv * (kernel - 1) * 2)


def _lightning(keys: Keys, family: Family, hidden: int) -> RecurrentPart:
    """MiniMax lightning attention: a key-value matrix for each head, in fp32."""
    heads = _size(keys, "num_attention_heads")
    dim = _size(keys, "head_dim", default=max(1, hidden // heads))
    wide = heads * dim
    bias = wide if family.out_bias else 0
    return RecurrentPart(hidden * 3 * wide + 2 * hidden * wide + wide + bias, heads * dim * dim * 4)
