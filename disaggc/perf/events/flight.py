"""One request on its way, and why some do not arrive. State only: who may change what is the engines' business."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disaggc.perf.events.front import Seat
    from disaggc.perf.events.load import Offered
    from disaggc.perf.events.prefill_engine import PrefillEngine


class Loss(StrEnum):
    """Why a request ended without its answer."""

    REFUSED = "refused"
    """The proxy's waiting line was full, or the wait in it too long."""
    TOO_LONG = "too-long"
    """The prompt exceeds the context limit, or the KV memory of an engine."""
    LEASE = "lease-expired"
    """Prefill gave the KV up before decode fetched it."""
    REPLICA = "replica-failed"
    """A replica ended in the middle of the answer, or no replica was left to try."""


class Flight:
    """A request. Times are seconds of the run; todo, done: prompt tokens still to compute and computed or cached.

    reused: prompt tokens that were cached when its computation began. last_step_s: of the step that ended its prompt.
    """

    __slots__ = (
        "base", "begun", "blocks", "cached", "done", "end_s", "epoch", "expires_s", "first_s", "isl", "last_step_s",
        "left", "loss", "osl", "paused_s", "prefill", "prefilled_s", "queued", "reused", "sent_s", "server", "source",
        "stream", "todo", "tries", "wanted",
    )  # fmt: skip

    def __init__(self, stream: int, ask: Offered) -> None:
        self.stream, self.isl, self.osl, self.cached = stream, ask.isl, ask.osl, ask.cached
        self.blocks = ask.blocks
        self.last_step_s = self.prefilled_s = 0.0
        self.sent_s = self.first_s = self.end_s = -1.0
        self.paused_s = -1.0
        self.loss: Loss | None = None
        self.wanted = 0.0
        self.server: Seat | None = None
        self.prefill: Seat | None = None
        self.source: PrefillEngine | None = None
        self.tries = 0
        self.epoch = 0
        self.queued = False
        self.expires_s = 0.0
        self.base = 0.0
        self.begun = 0
        self.fresh()

    def fresh(self) -> None:
        """Nothing of the prompt computed, nothing generated."""
        self.done = self.isl * self.cached
        self.todo = self.isl - self.done
        self.reused = self.done
        self.left = float(self.osl)

    def found(self, tokens: int) -> float:
        """Its first tokens are in a cache where it is about to be computed; how many less there are to compute."""
        less = tokens - self.done
        self.done, self.todo = float(tokens), float(self.isl - tokens)
        self.reused = self.done
        return less

    @property
    def streaming(self) -> bool:
        """Whether a byte of the answer went out."""
        return self.first_s >= 0
