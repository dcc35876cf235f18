"""What a decode or colocated engine tells the run around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from disaggc.perf.events.flight import Flight, Loss

if TYPE_CHECKING:
    from disaggc.perf.events.decode_engine import DecodeEngine


class Owner(Protocol):
    """What an engine tells the run. A request reaches an engine by the calendar only, never from within these calls."""

    def finished(self, flight: Flight, now: float) -> None:
        """The last token went out."""

    def lost(self, flight: Flight, now: float, loss: Loss) -> None:
        """The engine gives the request up."""

    def fetch(self, flight: Flight, engine: DecodeEngine, now: float) -> None:
        """Room is reserved: bring the KV, then call `arrived`."""
