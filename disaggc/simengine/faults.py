"""Faults that can be switched on: what happens, to which requests, when in their life, how often. Knows no sockets."""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from disaggc.ir.wording import faults


class Kind(StrEnum):
    """What goes wrong."""

    CRASH = "crash"
    """The process is gone at once."""
    TERMINATE = "terminate"
    """The process gets SIGTERM."""
    STOP = "stop"
    """The process is stopped and says nothing more, as behind a cut cable."""
    HANG = "hang"
    """This request is never answered; everything else goes on."""
    HALF_OPEN = "half-open"
    """The connection stays open, nothing is read or written on it any more."""
    FREEZE = "freeze"
    """No step ends for `seconds`; HTTP goes on."""
    SLOW = "slow"
    """Steps take `factor` times as long for `seconds`."""
    DROP = "drop"
    """The connection is reset."""
    STATUS = "status"
    """An answer with `status`; in a stream that has begun, an error event."""
    ERROR_200 = "error-200"
    """A 200 whose body is an error."""
    ABORT_200 = "abort-200"
    """A 200 that ends with `finish_reason` abort."""
    NULL_PARAMS = "null-params"
    """Prefill's answer without kv_transfer_params."""
    OTHER_BLOCKS = "other-blocks"
    """Prefill's answer names blocks of somebody else."""
    EXPIRE_LEASES = "expire-leases"
    """All leases end now; their blocks hold what they held until somebody else writes there."""
    REUSE_LEASES = "reuse-leases"
    """All leases end now and their blocks are other prompts', as on a prefill that is busy."""
    REFUSE = "refuse"
    """New connections are refused for `seconds`."""


class When(StrEnum):
    """When in the life of a request."""

    ARRIVAL = "arrival"
    WORKING = "working"
    """`delay_s` after it was taken in."""
    FIRST = "first"
    """Before the first byte of the answer's body."""
    MID = "mid"
    """After `after_tokens` words went out."""
    AFTER = "after"
    """When the answer is out: between the legs of prefill."""


class Fault(BaseModel):
    """One fault."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kind: Kind
    when: When = When.ARRIVAL
    leg: Literal["prefill", "decode", "any"] = "any"
    """Requests with `do_remote_decode` are prefill, all others decode."""
    count: Annotated[int, Field(ge=1)] | None = 1
    """Requests it happens to; None = all until it is switched off."""
    probability: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Of each request it could happen to."""
    status: Annotated[int, Field(ge=400, le=599)] = 500
    factor: Annotated[float, Field(gt=0)] = 10.0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    """How long a fault of the process lasts; 0 = until it is switched off."""
    delay_s: Annotated[float, Field(ge=0)] = 0.0
    """How long after the request was taken in, for `working`."""
    after_tokens: Annotated[int, Field(ge=1)] = 2


class FaultError(ValueError):
    """The text is not a fault; the message says why."""


def read_fault(text: bytes) -> Fault:
    """The fault in a JSON text; FaultError when it is none."""
    try:
        return Fault.model_validate_json(text)
    except ValidationError as exc:
        raise FaultError("; ".join(faults(exc, "fault"))) from None


class Faults:
    """The faults that are switched on, in order."""

    def __init__(self, seed: int = 0) -> None:
        self.pending: list[list[Fault | int | None]] = []
        """Each with how often it may still happen; the list stays the same object."""
        self._random = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self.happened: dict[str, int] = {}

    def switch_on(self, fault: Fault) -> None:
        """From now on."""
        self.pending.append([fault, fault.count])

    def clear(self) -> None:
        """Everything goes well again."""
        self.pending.clear()

    @property
    def on(self) -> list[Fault]:
        """Those that may still happen."""
        return [entry[0] for entry in self.pending if isinstance(entry[0], Fault)]

    def take(self, when: When, *, prefill: bool) -> Fault | None:
        """The fault that happens to this request now; counted."""
        if not self.pending:
            return None
        leg = "prefill" if prefill else "decode"
        for entry in self.pending:
            fault, left = entry
            if not isinstance(fault, Fault) or fault.when is not when or fault.leg not in ("any", leg):
                continue
            if self._random.random() >= fault.probability:
                continue
            if isinstance(left, int):
                entry[1] = left - 1
                if left <= 1:
                    self.pending.remove(entry)
            self.happened[fault.kind] = self.happened.get(fault.kind, 0) + 1
            return fault
        return None
