"""What an engine answers, and who takes it: the types between a connection and its users. No sockets."""

from __future__ import annotations

from collections.abc import Sequence
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
        """Whole events, in whole chunks."""

    def end(self, data: bytes) -> None:
        """The last of them, if any are left, without the last, empty chunk; the connection belongs to others."""

    def lost(self) -> None:
        """The answer will not be completed."""


class Home(Protocol):
    """Where a connection belongs."""

    @property
    def outbox(self) -> Outbox:
        """How it sends."""

    def put_back(self, connection: Connection) -> None:
        """Nobody owns it any more, it can take another request."""


class Answer:
    """What an engine said: the head, and the whole body, or the first events of a stream or all of them."""

    __slots__ = ("body", "connection", "ended", "framed", "head", "words")

    def __init__(self, head: Head, body: bytes, connection: Connection, *, framed: bool, ended: bool) -> None:
        self.head = head
        self.body = body
        self.connection = connection
        """Still the asker's while not `ended`, nobody's or another's after."""
        self.framed = framed
        """Whether the body is whole events of a stream, in whole chunks, less the last, empty one."""
        self.ended = ended
        self.words: Sequence[bytes] = ()
        """Of a stream, what `notable_in` found in the body, once it is judged."""
