"""Vision and audio encoders beside the decoder: an estimate of their parameters, for memory alone.

They keep no KV and their parameters are not the language model's, so they stay out of its totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from disaggc.catalog.config_keys import Keys

TOWERS = (
    "vision_config",
    "audio_config",
    "vision_tower",
    "audio_encoder_config",
    "sound_config",
    "speech_config",
)
_HIGH = 1_000_000


def is_multimodal(raw: Mapping[str, Any]) -> bool:
    """Whether the config has an encoder beside its language model."""
    inner = raw.get("thinker_config")
    return any(isinstance(raw.get(name), dict) for name in TOWERS) or (
        isinstance(inner, dict) and is_multimodal(inner)
    )


def tower_parameters(raw: Mapping[str, Any], source: str) -> int:
    """Parameters of all encoders: transformer layers with two-matrix MLPs, a patch embedding, a projector."""
    inner = raw.get("thinker_config")
    nested = tower_parameters(inner, source) if isinstance(inner, dict) else 0
    parts = (raw.get(name) for name in TOWERS)
    return nested + sum(_one(Keys(part, source, [])) for part in parts if isinstance(part, dict))


def _one(keys: Keys) -> int:
    wide = keys.integer(
        "hidden_size", "embed_dim", "d_model", "vt_hidden_size", "width", high=_HIGH, default=0
    )
    layers = keys.integer(
        "num_hidden_layers",
        "depth",
        "encoder_layers",
        "layers",
        "vt_num_hidden_layers",
        high=2_000,
        default=0,
    )
    names = ("intermediate_size", "encoder_ffn_dim", "vt_intermediate_size")
    inner = keys.integer(*names, high=_HIGH, default=4 * wide)
    out = keys.integer(
        "out_hidden_size", "projection_dim", "text_hidden_size", "output_dim", high=_HIGH, default=wide
    )
    merge = keys.integer("spatial_merge_size", high=16, default=1) ** 2 or 1
    projector = (wide * merge) ** 2 + wide * merge * out if wide else 0
    return layers * (4 * wide * wide + 2 * wide * inner) + projector
