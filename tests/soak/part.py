"""One part of the soak: what was tried, how much, what went wrong."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """tried: in words, with the count; faults: one sentence each, none when it held."""

    name: str
    tried: str
    faults: tuple[str, ...]
    minutes: float = 0.0

    def row(self) -> str:
        """Its line of the table."""
        verdict = "held" if not self.faults else f"{len(self.faults)} faults: " + "; ".join(self.faults)
        return f"| {self.name} | {self.tried} | {self.minutes:.1f} | {verdict} |"
