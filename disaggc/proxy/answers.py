"""What an engine answers, and who takes it: the types between a connection and its users. No sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from disaggc.proxy.framing import Head

if TYPE_CHECKING:
    from disaggc.proxy.upstream import Connection


class Sink(Protocol):
    """Where the body of a streaming answer goes."""

    def segment(self, data: bytes) -> None:
        """Body bytes, cut at chunk borders."""

    def end(self) -> None:
        """The answer is complete."""

    def lost(self, reason: str) -> None:
        """The answer will not be completed."""


class Home(Protocol):
    """Where a connection belongs."""

    def put_back(self, connection: Connection) -> None:
        """Its answer is complete, it can take another request."""

    def forget(self, connection: Connection) -> None:
        """It is gone."""


class Answer:
    """What an engine said: the head, and the whole body or its first bytes (framed)."""

    __slots__ = ("body", "connection", "ended", "head")

    def __init__(self, head: Head, body: bytes, *, ended: bool, connection: Connection) -> None:
        self.head = head
        self.body = body
        self.ended = ended
        self.connection = connection
