"""One sequence of the double: a prompt, what is asked of it, how far it is. Knows no schedule and no wire."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

from disaggc.simengine.tokens import Continuation

NOTHING = Continuation(b"")
"""Of a prompt that is not computed."""


class State(Enum):
    """Where a sequence is."""

    WAITING = auto()
    FETCHING = auto()
    """Its blocks are taken, its KV is on the way."""
    READY = auto()
    """Its KV is here; waits for a place in a step."""
    RUNNING = auto()
    DONE = auto()


class Sink(Protocol):
    """Who takes the tokens of a sequence."""

    def push(self, sequence: Sequence, words: list[int]) -> None:
        """More words."""

    def finish(self, sequence: Sequence, reason: str) -> None:
        """The end: stop, length, abort or error. Comes after the last words."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks of each of its sequences."""

    max_tokens: int
    interval: int
    """Words per push; the first and the last are never held back."""
    ends_after: int | None = None
    """Ends by itself after so many tokens, as by an end-of-sequence token."""
    stopped: Callable[[Sequence], bool] | None = None
    """Whether a stop condition is met; asked after each word."""
    distinct: bool = False
    """The choices of one request differ (sampling)."""
    choices: int = 1
    """Sequences of the request."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """kv_transfer_params of the request."""

    @property
    def keeps(self) -> bool:
        """Decode will fetch the KV."""
        return self.params.get("do_remote_decode") is True

    @property
    def fetches(self) -> bool:
        """Prefill has the KV."""
        return self.params.get("do_remote_prefill") is True


class Sequence:
    """A sequence from its arrival to its end. Times are those of the event loop."""

    __slots__ = (
        "arrived", "blocks", "cached", "computed", "continuation", "digests", "external", "first_at", "generated",
        "ids", "index", "key", "last_at", "name", "out", "params", "plain", "preemptions", "prompt", "room",
        "scheduled", "sink", "state", "stop_reason", "target", "wish",
    )  # fmt: skip

    def __init__(
        self, name: str, ids: array[int], wish: Wish, *, sink: Sink, index: int, arrived: float
    ) -> None:
        self.name, self.ids, self.wish, self.sink, self.index = name, ids, wish, sink, index
        self.plain = (
            0 if wish.stopped is not None else min(wish.max_tokens, wish.ends_after or wish.max_tokens)
        )
        """Words before this one never end the sequence."""
        self.key = name
        """What the other side of a concurrent dialect knows the sequence by."""
        self.prompt = self.target = len(ids)
        """target: tokens to compute before the next word; more than the prompt after a preemption."""
        self.digests: list[bytes] = []
        self.blocks: list[int] = []
        self.computed = self.cached = self.external = self.generated = self.room = self.preemptions = 0
        self.continuation = NOTHING
        self.out: list[int] = []
        self.state = State.WAITING
        self.arrived = arrived
        self.scheduled = self.first_at = self.last_at = 0.0
        self.params: dict[str, Any] | None = None
        """kv_transfer_params of the answer."""
        self.stop_reason: str | int | None = None

    @property
    def length(self) -> int:
        """Tokens of context."""
        return self.prompt + self.generated


class Exchange(Protocol):
    """Moves KV between engines."""

    def fetch(self, sequence: Sequence) -> None:
        """Get the KV of a sequence that has its blocks; `Scheduler.arrived` gets it."""

    def cancel(self, sequence: Sequence) -> None:
        """The sequence is gone before its KV came."""

    def keep(self, sequence: Sequence, reason: str) -> bool:
        """Whether the finished sequence's blocks stay pinned; sets the parameters of its answer."""
