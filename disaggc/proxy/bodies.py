"""How many bytes of request bodies are on their way in one worker, and who gives way when they are too many.

Only bodies that one read did not complete are counted, so that most requests never come here.
"""

from __future__ import annotations

from typing import Protocol

from disaggc.proxy.failures import RefusedError


class Receiver(Protocol):
    """A connection on which a body arrives."""

    def refuse(self, refused: RefusedError) -> None:
        """Answer what never became a request, and close."""


class Bodies:
    """Unfinished bodies by connection, oldest first."""

    __slots__ = ("_sizes", "held")

    def __init__(self) -> None:
        self._sizes: dict[Receiver, int] = {}
        self.held = 0
        """Bytes of all."""

    def hold(self, who: Receiver, size: int) -> None:
        """So much of that body is here."""
        self.held += size - self._sizes.get(who, 0)
        self._sizes[who] = size

    def drop(self, who: Receiver) -> None:
        """It is complete, or nobody wants it any more."""
        self.held -= self._sizes.pop(who, 0)

    def too_old(self, limit: int) -> list[Receiver]:
        """Those to refuse until the rest is within the limit.

        The oldest: who sends in earnest is done soon, who only wants to occupy memory is not.
        """
        found: list[Receiver] = []
        over = self.held - limit
        for who, size in self._sizes.items():
            if over <= 0:
                break
            found.append(who)
            over -= size
        return found
