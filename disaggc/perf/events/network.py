"""KV on its way from prefill engines to decode replicas that share their network cards.

Each side has a line that works off what was given to it in order; a transfer is over when both of its lines are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from disaggc.perf.constants import Values
from disaggc.perf.events.flight import Flight
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
    path: KvPath,
    values: Values,
    source: PrefillEngine,
    *,
    inlet: Inlet,
    tokens: float,
    now: float,
    hidden_s: float = 0.0,
) -> float:
    """When the KV of `tokens` prompt tokens that starts now is there; takes its time on both lines.

    hidden_s: while the prompt was computed, its first layers could move already; the last one never could.
    """
    moving = path.bytes_for(tokens) / path.speed(values)
    moving = max(moving - hidden_s, moving / path.layers)
    lane = inlet.earliest()
    source.link_free_s = max(source.link_free_s, now) + moving
    inlet.lanes[lane] = max(inlet.lanes[lane], now) + moving
    return max(source.link_free_s, inlet.lanes[lane]) + path.latency_s + values.kv_setup_s


def hidden_s(flight: Flight, now: float, hop_s: float) -> float:
    """What went by of a layer-wise transfer while the prompt's last step ran: nothing where decode had no room yet."""
    return flight.last_step_s if now - flight.prefilled_s <= 2 * hop_s else 0.0
