"""The circuit of one replica: closed, open after failures in a row, half-open for one try after a rest.

A pure state with the time as a parameter (seconds of any steady clock).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Circuit:
    """Opens after `threshold` failures in a row; after `rest_s` one request may try it."""

    threshold: int
    rest_s: float
    failures: int = 0
    open_until: float = 0.0
    probing: bool = False

    def allows(self, now: float) -> bool:
        """Whether a request may be sent."""
        return self.failures < self.threshold or (now >= self.open_until and not self.probing)

    def sent(self) -> None:
        """A request is on its way; while half-open it is the only one."""
        if self.failures >= self.threshold:
            self.probing = True

    def succeeded(self) -> None:
        """The replica answered."""
        self.failures = 0
        self.probing = False

    def withdrawn(self) -> None:
        """The request ended without saying anything about the replica (the client left)."""
        self.probing = False

    def failed(self, now: float) -> bool:
        """The replica failed a request; True when this opened the circuit (again)."""
        self.failures += 1
        self.probing = False
        if self.failures < self.threshold:
            return False
        self.open_until = now + self.rest_s
        return True
