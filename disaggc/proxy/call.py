"""One request to one engine: on an idle connection or a new one, until its answer has begun or nobody waits any more.

Driven by its connection's callbacks: no task, no future, no timer. Its owner calls `expire` when it is late.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from disaggc.proxy.board import Total
from disaggc.proxy.failures import LegError
from disaggc.proxy.verdicts import Handed, fault_of, handed_over, has_begun

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.upstream import Connection, Message
    from disaggc.routing.table import Dialect


class Heirs(Protocol):
    """Who takes over what a prefill may have finished although nobody waits for it any more."""

    def salvage(self, connection: Connection, prefill: Replica) -> None:
        """Hang up, and release what an answer on its way says."""


class Caller(Protocol):
    """Who made the call; told exactly once, unless it dropped the call."""

    def took(self, call: Call, answer: Answer) -> None:
        """The answer; one that has not ended must be relayed or its connection closed."""

    def missed(self, call: Call, error: LegError) -> None:
        """There is no good answer."""


class Terms(NamedTuple):
    """How a call is made; the same for many."""

    seconds: float
    """How long an answer is waited for."""
    connect_s: float
    stream: bool = False
    """Whether the caller is told at the first events of a stream."""
    again: bool = False
    """Whether, should the engine have closed the connection meanwhile, a new one is tried."""


class Call:
    """One call; `open` while somebody waits for it."""

    __slots__ = (
        "_again", "_caller", "_connection", "_last", "_message", "_terms", "deadline", "open", "replica",
    )  # fmt: skip

    def __init__(
        self, caller: Caller, replica: Replica, message: Message, *, terms: Terms, last: float
    ) -> None:
        self._caller = caller
        self.replica = replica
        self._message = message
        self._terms = terms
        self._last = last
        self.deadline = last
        """By the monotonic clock; at most `last`."""
        self.open = True
        self._again = terms.again
        self._connection: Connection | None = None

    def start(self, now: float) -> None:
        """Ask on an idle connection, or a new one."""
        pool = self.replica.pool
        connection = pool.take(now)
        if connection is None:
            pool.open(self, self._terms.connect_s)
        else:
            self._ask(connection, now)

    def _ask(self, connection: Connection, now: float) -> None:
        self._connection = connection
        terms = self._terms
        deadline = now + terms.seconds
        if deadline < self._last:
            self.deadline = deadline
        connection.ask(self, self._message, begun=has_begun if terms.stream else None)

    def opened(self, connection: Connection) -> None:
        """A new connection; one that nobody waits for any more serves the next."""
        if self.open:
            self._ask(connection, monotonic())
        else:
            self.replica.pool.put_back(connection)

    def answered(self, answer: Answer) -> None:
        """The engine's answer, or its start: whoever is told owns the connection of the latter."""
        self._end()
        self._caller.took(self, answer)

    def failed(self, error: LegError) -> None:
        """No connection, or it broke."""
        if not self.open:
            return
        if self._again and not error.fresh:
            self._again = False
            self._connection = None
            self.deadline = self._last
            self.replica.count_total(Total.STALE_RETRIES)
            self.replica.pool.open(self, self._terms.connect_s)
            return
        self._end()
        self._caller.missed(self, error)

    def expire(self) -> None:
        """Its time is over."""
        self._leave()
        self._end()
        self._caller.missed(self, LegError("timeout", status=504))

    def drop(self) -> None:
        """Nobody waits any more."""
        if self.open:
            self._leave()
            self._end()

    def _leave(self) -> None:
        """The engine sees that nobody waits."""
        if self._connection is not None:
            self._connection.close()

    def _end(self) -> None:
        self.open = False
        self._connection = None
        self._message = b""


class Leg(Call):
    """A call whose outcome counts for the replica: its answer is judged, its circuit is told."""

    __slots__ = ()

    def answered(self, answer: Answer) -> None:
        """Judge it."""
        fault = self._judge(answer)
        if fault is None:
            self.replica.circuit.succeeded()
            self._end()
            self._caller.took(self, answer)
            return
        if not answer.ended:
            answer.connection.close()
        self._blame(fault)
        self._end()
        self._caller.missed(self, fault)

    def failed(self, error: LegError) -> None:
        """A failure counts, a connection that the engine had closed in time does not."""
        if self.open and not (self._again and not error.fresh):
            self._blame(error)
        super().failed(error)

    def expire(self) -> None:
        """Late answers count as failures."""
        self.replica.failed(monotonic())
        super().expire()

    def drop(self) -> None:
        """Says nothing about the replica."""
        if self.open:
            self.replica.circuit.withdrawn()
        super().drop()

    def _judge(self, answer: Answer) -> LegError | None:
        return fault_of(answer)

    def _blame(self, error: LegError) -> None:
        if error.blame and error.fresh:
            self.replica.failed(monotonic())
        else:
            self.replica.circuit.withdrawn()


class PrefillLeg(Leg):
    """A prefill: occupies its replica by the prompt's tokens, and may have finished although nobody waits any more."""

    __slots__ = ("_dialect", "_heirs", "_tokens", "handed")

    def __init__(
        self, caller: Caller, replica: Replica, message: Message, *, terms: Terms, last: float, tokens: float,
        heirs: Heirs | None, dialect: Dialect,
    ) -> None:  # fmt: skip
        super().__init__(caller, replica, message, terms=terms, last=last)
        self._tokens = tokens
        self._heirs = heirs
        """Who releases what it keeps; None where decode does not get its parameters from the answer."""
        self._dialect = dialect
        self.handed: Handed | None = None
        """What it hands over, once it has answered."""
        replica.take(tokens)

    def _judge(self, answer: Answer) -> LegError | None:
        if self._heirs is None or answer.head.status != 200 or answer.head.event_stream:
            return fault_of(answer)
        handed = handed_over(answer.body, self._dialect)
        if isinstance(handed, LegError):
            return handed
        self.handed = handed
        return None

    def _leave(self) -> None:
        if self._connection is not None and self._heirs is not None:
            self._heirs.salvage(self._connection, self.replica)
        else:
            super()._leave()

    def _end(self) -> None:
        super()._end()
        self.replica.release(self._tokens)
