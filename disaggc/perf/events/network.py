"""KV on its way from prefill engines to decode replicas that share their network cards.

Each side has a line that works off what was given to it in order; a transfer is over when both of its lines are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from disaggc.perf.constants import Values
from disaggc.perf.events.prefill_engine import PrefillEngine
from disaggc.perf.transfer import KvPath


@dataclass(slots=True)
class Inlet:
    """The cards of one decode replica. lanes: data-parallel ranks, each with its own."""

    lanes: list[float] = field(default_factory=list)

    def earliest(self) -> int:
        """The lane that is free first."""
        return min(range(len(self.lanes)), key=self.lanes.__getitem__)


def transfer_end(
    path: KvPath, values: Values, source: PrefillEngine, *, inlet: Inlet, tokens: float, now: float
) -> float:
    """When the KV of `tokens` prompt tokens that starts now is there; takes its time on both lines."""
    moving = path.bytes_for(tokens) / path.speed(values)
    lane = inlet.earliest()
    source.link_free_s = max(source.link_free_s, now) + moving
    inlet.lanes[lane] = max(inlet.lanes[lane], now) + moving
    return max(source.link_free_s, inlet.lanes[lane]) + path.latency_s + values.kv_setup_s
