"""What config files leave out because the architecture's config class fills it in, made explicit before sizing.

Two habits: nested text parts that state only what differs from their class, and per-layer block lists. Knows nothing
of parameters; a flat config that lacks an essential key is not completed here, it is refused later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NESTED: dict[str, dict[str, Any]] = {
    "gemma3_text": {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 4096,
        "max_position_embeddings": 131072,
    },
    "gemma": {
        "num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 256000, "max_position_embeddings": 8192,
    },
    "gemma2": {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 256000, "sliding_window": 4096},
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 2048,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 131072,
    },
    "llama4_text": {"vocab_size": 202048, "num_attention_heads": 40, "num_key_value_heads": 8},
}  # fmt: skip
"""Class defaults that published multimodal checkpoints rely on (transformers configuration classes)."""

_FFN_MULTIPLE = 256


def nested_defaults(text_part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Class defaults of a nested text part, by its `model_type`; empty where its files are complete."""
    model_type = text_part.get("model_type")
    return _NESTED.get(model_type, {}) if isinstance(model_type, str) else {}


def spread_blocks(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Nemotron-NAS `block_configs` as the per-layer lists that other configs use; any other config as it is."""
    blocks = raw.get("block_configs")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return raw
    attention = [_part(block, "attention") for block in blocks]
    feeds = [_part(block, "ffn") for block in blocks]
    if any(part.get("replace_with_linear") for part in attention + feeds):
        return {**raw, "layer_types": ["a linear layer in place of a block"]}
    widths = [_width(part, raw) for part in feeds]
    kinds = ["no_attention" if part.get("no_op") else "full_attention" for part in attention]
    heads = [_kv_heads(part, raw) for part in attention]
    return {**raw, "layer_types": kinds, "num_key_value_heads": heads, "intermediate_size": widths}


def _part(block: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = block.get(name)
    return part if isinstance(part, dict) else {}


def _kv_heads(part: Mapping[str, Any], raw: Mapping[str, Any]) -> object:
    group, heads = part.get("n_heads_in_group"), raw.get("num_attention_heads")
    if isinstance(group, int) and isinstance(heads, int) and group > 0:
        return heads // group
    return part.get("num_key_value_heads") or 1


def _width(part: Mapping[str, Any], raw: Mapping[str, Any]) -> object:
    """MLP width: stated, or two thirds of a multiple of the hidden size, rounded up to 256."""
    if part.get("no_op"):
        return 0
    factor, hidden = part.get("ffn_mult"), raw.get("hidden_size")
    if (
        isinstance(factor, int | float)
        and isinstance(hidden, int)
        and 0 < factor < 1e4
        and 0 < hidden < 10**7
    ):
        return -(-int(2 * factor * hidden / 3) // _FFN_MULTIPLE) * _FFN_MULTIPLE
    return part.get("intermediate_size")
