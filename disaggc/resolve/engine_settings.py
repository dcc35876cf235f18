"""What the user's `vllm serve` flags mean for planning: merged for each role, and the few that size memory."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from disaggc.catalog.engines import EngineSnapshot
from disaggc.catalog.facts import ModelFacts
from disaggc.resolve.model import ClassLoad, PartName
from disaggc.spec.engine import Engine
from disaggc.spec.names import SettingValue

_DEFAULT_UTILISATION = 0.9
_SHORTEST_LIMIT = 2048
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kKmM]?)")
_MULTIPLE = {"": 1, "k": 1000, "K": 1024, "m": 1_000_000, "M": 1024 * 1024}


def merged_settings(
    engine: Engine, snapshot: EngineSnapshot
) -> Mapping[PartName, Mapping[str, SettingValue]]:
    """Flags of each role under their canonical names; a role's own value wins, colocated takes the common ones."""
    names = {alias: flag.name for flag in snapshot.flags.values() for alias in flag.aliases}
    common = _canonical(engine.settings, names)
    return {
        "prefill": {**common, **_canonical(engine.prefill.settings, names)},
        "decode": {**common, **_canonical(engine.decode.settings, names)},
        "colocated": common,
    }


def _canonical(settings: Mapping[str, SettingValue], names: Mapping[str, str]) -> dict[str, SettingValue]:
    out: dict[str, SettingValue] = {}
    for written, value in settings.items():
        dashed = written.replace("_", "-")
        out[names.get(dashed, dashed)] = value
    return out


def kv_cache_dtype(settings: Mapping[str, SettingValue]) -> str:
    """`--kv-cache-dtype` as set, else `auto`."""
    value = settings.get("kv-cache-dtype")
    return value if isinstance(value, str) and value else "auto"


def utilisation(settings: Mapping[str, SettingValue], snapshot: EngineSnapshot) -> float:
    """`--gpu-memory-utilization` as set, else the version's default."""
    value = settings.get("gpu-memory-utilization")
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        return float(value)
    flag = snapshot.flags.get("gpu-memory-utilization")
    try:
        return float(flag.default) if flag is not None and flag.default is not None else _DEFAULT_UTILISATION
    except ValueError:
        return _DEFAULT_UTILISATION


def max_model_len(
    settings: Mapping[str, SettingValue], model: ModelFacts, classes: Iterable[ClassLoad]
) -> int:
    """`--max-model-len` as set, else the least round length that holds the p99 prompt and the p99 answer."""
    given = _count(settings.get("max-model-len"))
    if given is not None:
        return given
    needed = max((math.ceil(load.isl.p99) + math.ceil(load.osl.p99) for load in classes), default=0)
    limit = _round_up(max(needed, _SHORTEST_LIMIT))
    return min(limit, model.max_position) if model.max_position > 0 else limit


def _count(value: SettingValue) -> int | None:
    """A number of tokens as vLLM reads it: `16384`, `16k` (thousands), `16K` (1024s); None for `auto` and the rest."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value > 0 else None
    match = _COUNT.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 20 else None
    if match is None:
        return None
    return int(float(match[1]) * _MULTIPLE[match[2]]) or None


def _round_up(tokens: int) -> int:
    """The next power of two, or three quarters of it where that suffices."""
    power = 1 << (tokens - 1).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= tokens else power
