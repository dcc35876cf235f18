"""A scrape of an engine's Prometheus page: totals by name, and what it says of its KV cache. Sends nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? (\S+)(?: \d+)?$")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Metrics:
    """One scrape. totals: summed over an engine's ranks; config: labels of cache_config_info by rank."""

    totals: Mapping[str, float]
    config: tuple[Mapping[str, str], ...]

    def __getitem__(self, name: str) -> float:
        """The total without `vllm:`, 0 where the engine does not have it."""
        return self.totals.get(f"vllm:{name}", 0.0)

    @property
    def time_scale(self) -> float:
        """How much faster than its own clock the engine runs: a double says so, a real engine is none."""
        return self.totals.get("disaggc_sim_time_scale", 1.0)


def read_metrics(text: str) -> Metrics:
    """Totals over all label sets but those that split one total by reason or source."""
    totals: dict[str, float] = {}
    config: list[Mapping[str, str]] = []
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        if found is None:
            continue
        name, labels = found[1], dict(_LABEL.findall(found[2] or ""))
        if name == "vllm:cache_config_info":
            config.append(labels)
        elif name.endswith(("_bucket", "_created")):
            continue
        else:
            source = labels.get("source")
            for key in (name, f"{name}:{source}" if source else None):
                if key is not None:
                    totals[key] = totals.get(key, 0.0) + float(found[3])
    return Metrics(totals, tuple(config))
