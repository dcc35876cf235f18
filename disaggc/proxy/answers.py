"""What an engine answers, and who takes it: the types between a connection and its users. No sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from disaggc.proxy.failures import LegError
from disaggc.proxy.framing import Head

if TYPE_CHECKING:
    from disaggc.proxy.outbox import Outbox
    from disaggc.proxy.upstream import Connection


class Asker(Protocol):
    """Who asked an engine. Told exactly once, from the connection's own callback; told nothing after it has left."""

    def answered(self, answer: Answer) -> None:
        """The whole answer, or the start of a stream, whose connection must then be relayed or closed."""

    def failed(self, error: LegError) -> None:
        """There will be no answer, and the connection is closed."""


class Sink(Protocol):
    """Where the body of a streaming answer goes."""

    def segment(self, data: bytes) -> None:
        """Body bytes, cut at chunk borders."""

    def end(self) -> None:
        """The answer is complete, and the connection belongs to others."""

    def lost(self, *, at_border: bool) -> None:
        """The answer will not be completed; `at_border`: what went to the sink ends at a chunk border."""


class Home(Protocol):
    """Where a connection belongs."""

    outbox: Outbox
    """How it sends."""

    def made(self, connection: Connection) -> None:
        """It is open."""

    def put_back(self, connection: Connection) -> None:
        """Nobody owns it any more, it can take another request."""

    def forget(self, connection: Connection) -> None:
        """It is gone."""


class Answer:
    """What an engine said: the head, and the whole body, or the first chunks of a stream or all of it as they came."""

    __slots__ = ("body", "connection", "ended", "framed", "head")

    def __init__(self, head: Head, body: bytes, connection: Connection, *, framed: bool, ended: bool) -> None:
        self.head = head
        self.body = body
        self.connection = connection
        """Still the asker's while not `ended`, nobody's or another's after."""
        self.framed = framed
        """Whether the body is whole chunks of a stream."""
        self.ended = ended
