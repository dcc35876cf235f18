"""Which kind of layer stands where: full attention, sliding window, recurrent, none; each family says it its own way.

Reads keys of the config; knows nothing of sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from disaggc.catalog.compressed_attention import compress_ratios
from disaggc.catalog.config_keys import Keys
from disaggc.catalog.facts import LayerKind
from disaggc.catalog.families import Family

_NAMES = {
    "full_attention": LayerKind.FULL,
    "attention": LayerKind.FULL,
    "hybrid": LayerKind.FULL,
    "full": LayerKind.FULL,
    "chunked_attention": LayerKind.FULL,
    "indexed_attention": LayerKind.FULL,
    "sparse_attention": LayerKind.FULL,
    "sliding_attention": LayerKind.SLIDING,
    "local": LayerKind.SLIDING,
    "linear_attention": LayerKind.LINEAR,
    "linear": LayerKind.LINEAR,
    "mamba": LayerKind.LINEAR,
    "mamba2": LayerKind.LINEAR,
    "conv": LayerKind.LINEAR,
    "recurrent": LayerKind.LINEAR,
    "mlp": LayerKind.NONE,
    "moe": LayerKind.NONE,
    "no_attention": LayerKind.NONE,
}
_LETTERS = {"M": LayerKind.LINEAR, "*": LayerKind.FULL, "-": LayerKind.NONE, "E": LayerKind.NONE}
_HIGH = 1_000_000
MAX_LAYERS = 2_000


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """By layer: kinds is what it caches, feeds whether it has a feed-forward part; experts: layers a pattern marks so.

    attends: its attention whether or not it caches by itself (Gemma's last layers read an earlier layer's cache).
    """

    kinds: tuple[LayerKind, ...]
    feeds: tuple[bool, ...]
    attends: tuple[LayerKind, ...]
    experts: tuple[bool, ...] | None = None
    parallel_state: bool = False
    """Every layer has attention and a recurrent state side by side (Falcon-H1)."""


def read_layer_count(keys: Keys) -> int:
    """Number of decoder layers; where only a list of layer kinds is given, its length."""
    names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
    if keys.text("model_type") == "longcat_flash" and keys.has("num_layers"):
        return 2 * keys.required("num_layers", high=MAX_LAYERS // 2)  # each of its layers attends twice
    listed = keys.raw.get("layers_block_type") or keys.raw.get("hybrid_override_pattern")
    if not keys.has(*names) and isinstance(listed, list | str) and 0 < len(listed) <= MAX_LAYERS:
        return len(listed)
    return keys.required(*names, high=MAX_LAYERS)


def read_layers(keys: Keys, family: Family, count: int) -> LayerPlan:
    """The layers of a config, in order."""
    pattern = (
        keys.text("hybrid_override_pattern")
        if isinstance(keys.raw.get("hybrid_override_pattern"), str)
        else ""
    )
    if pattern:
        return _lettered(keys, pattern, count)
    named = keys.texts("layers_block_type") or keys.texts("layer_types")
    if named:
        return _named(keys, named, count)
    always = (True,) * count
    if keys.text("model_type") == "falcon_h1":
        full = (LayerKind.FULL,) * count
        return LayerPlan(full, always, full, parallel_state=True)
    if keys.text("model_type") in {"mamba", "mamba2", "falcon_mamba"}:
        linear = (LayerKind.LINEAR,) * count
        return LayerPlan(linear, (False,) * count, linear)
    kinds = _hybrid(keys, count) or _windowed(keys, family, count)
    return LayerPlan(_shared(keys, kinds), always, kinds)


def _lettered(keys: Keys, pattern: str, count: int) -> LayerPlan:
    """Nemotron-H: one letter a layer; attention, state, MLP and experts each are a layer of their own."""
    if len(pattern) != count or set(pattern) - set(_LETTERS):
        keys.refuse(
            f"`hybrid_override_pattern` describes {len(pattern)} layers of M, *, - and E, the model has {count}"
        )
        return _uniform(count)
    kinds = tuple(_LETTERS[letter] for letter in pattern)
    feeds = tuple(letter in "-E" for letter in pattern)
    return LayerPlan(kinds, feeds, kinds, tuple(letter == "E" for letter in pattern))


def _uniform(count: int) -> LayerPlan:
    full = (LayerKind.FULL,) * count
    return LayerPlan(full, (True,) * count, full)


def _named(keys: Keys, named: tuple[str, ...], count: int) -> LayerPlan:
    unknown = sorted(set(named) - set(_NAMES))
    if unknown or len(named) < count:
        said = f"names `{unknown[0][:40]}`" if unknown else f"has {len(named)} entries for {count} layers"
        keys.refuse(f"`layer_types` {said}, so the cache of these layers cannot be sized")
        return _uniform(count)
    kinds = tuple(_NAMES[name] for name in named[:count])
    if set(named) & {"mlp", "moe"}:
        feeds = tuple(name in {"mlp", "moe"} for name in named[:count])
        return LayerPlan(kinds, feeds, kinds, tuple(name == "moe" for name in named[:count]))
    return LayerPlan(_shared(keys, kinds), (True,) * count, kinds)


def _shared(keys: Keys, kinds: tuple[LayerKind, ...]) -> tuple[LayerKind, ...]:
    """Gemma 3n and 4: the last layers read the cache of an earlier one; Hunyuan: all but each n-th do."""
    if keys.flag("use_cla", default=False):
        every = keys.integer("cla_share_factor", low=1, high=_HIGH, default=2)
        return tuple(kind if i % every == 0 else LayerKind.NONE for i, kind in enumerate(kinds))
    shared = min(keys.integer("num_kv_shared_layers", high=_HIGH, default=0), len(kinds))
    return kinds[: len(kinds) - shared] + (LayerKind.NONE,) * shared


def _hybrid(keys: Keys, count: int) -> tuple[LayerKind, ...] | None:
    """Full attention in some layers, recurrence in the others; None for a model without recurrence."""
    full = _full_layers(keys)
    return (
        None if full is None else tuple(LayerKind.FULL if full(i) else LayerKind.LINEAR for i in range(count))
    )


def _full_layers(keys: Keys) -> Callable[[int], bool] | None:
    linear = keys.section("linear_attn_config")
    if linear is not None and linear.has("full_attn_layers"):
        ones = set(linear.integers("full_attn_layers"))
        return lambda i: i + 1 in ones
    if keys.has("attn_type_list"):
        flags = keys.integers("attn_type_list")
        return lambda i: i >= len(flags) or flags[i] == 1
    if keys.has("attn_layer_indices") or keys.text("model_type") == "bamba":
        places = set(keys.integers("attn_layer_indices"))
        return lambda i: i in places
    if keys.has("attn_layer_period"):
        period = keys.integer("attn_layer_period", low=1, high=_HIGH, default=1)
        offset = keys.integer("attn_layer_offset", high=_HIGH, default=0)
        return lambda i: i % period == offset
    if keys.has("full_attention_interval") or keys.has("linear_num_value_heads"):
        interval = keys.integer("full_attention_interval", low=1, high=_HIGH, default=4)
        return lambda i: (i + 1) % interval == 0
    return None


def _windowed(keys: Keys, family: Family, count: int) -> tuple[LayerKind, ...]:
    """Sliding windows in some layers, all, or none."""
    if keys.text("model_type") == "deepseek_v4":
        return tuple(LayerKind.FULL if ratio else LayerKind.SLIDING for ratio in compress_ratios(keys, count))
    # Qwen2 and 3 name a window that they do not use unless told to; 0 and -1 mean none.
    used = keys.flag("use_sliding_window", default=not keys.text("model_type").startswith("qwen"))
    if not used or keys.raw.get("sliding_window") in (None, 0, -1, False):
        return (LayerKind.FULL,) * count
    if isinstance(keys.raw.get("hybrid_layer_pattern"), list):
        marks = keys.integers("hybrid_layer_pattern")
        return tuple(
            LayerKind.SLIDING if i < len(marks) and marks[i] else LayerKind.FULL for i in range(count)
        )
    letters = keys.raw.get("sliding_window_pattern")
    if isinstance(letters, str) and letters:
        return tuple(
            LayerKind.SLIDING if letters[i % len(letters)] == "L" and i < count - 1 else LayerKind.FULL
            for i in range(count)
        )
    names = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
    period = keys.integer(*names, high=_HIGH, default=family.default_period)
    if period:
        return tuple(LayerKind.FULL if (i + 1) % period == 0 else LayerKind.SLIDING for i in range(count))
    first = keys.integer("max_window_layers", high=_HIGH, default=0) if keys.has("use_sliding_window") else 0
    return tuple(LayerKind.SLIDING if i >= first else LayerKind.FULL for i in range(count))
