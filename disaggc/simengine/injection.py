"""What a fault does to the request it happens to. Faults of the whole process are passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from disaggc.simengine.answers import ERROR, Answer
from disaggc.simengine.faults import Fault, Faults, Kind, When
from disaggc.simengine.http import Connection


class Injection:
    """Faults at the moments of a request's life. lost: ends a request as if its client had gone."""

    def __init__(
        self,
        faults: Faults,
        scale: float,
        *,
        on_fault: Callable[[Fault], None],
        lost: Callable[[Answer], None],
    ) -> None:
        self._faults, self._scale, self._on_fault, self._lost = faults, scale, on_fault, lost

    def at_arrival(self, fault: Fault, connection: Connection, body: dict[str, Any]) -> bool:
        """Whether the request ends here."""
        match fault.kind:
            case Kind.DROP:
                connection.drop()
            case Kind.STATUS:
                connection.answer_json(fault.status, {"error": {**ERROR["error"], "code": fault.status}})
            case Kind.ERROR_200:
                connection.answer_json(200, ERROR)
            case Kind.ABORT_200:
                choice = {
                    "index": 0,
                    "text": "",
                    "message": {"role": "assistant", "content": ""},
                    "finish_reason": "abort",
                }
                connection.answer_json(200, {"id": "cmpl-0", "model": body.get("model"), "choices": [choice]})
            case Kind.HANG:
                pass
            case Kind.HALF_OPEN:
                connection.frozen = True
                connection.transport.pause_reading()
            case _:
                self._on_fault(fault)
                return False
        return True

    def while_working(self, fault: Fault, answer: Answer) -> None:
        """A fault after the request was taken in, or in the parameters it will answer with."""
        if fault.kind in (Kind.NULL_PARAMS, Kind.OTHER_BLOCKS):
            answer.change_params = _nulled if fault.kind is Kind.NULL_PARAMS else _elsewhere
            return
        asyncio.get_running_loop().call_later(fault.delay_s / self._scale, self._happen, fault, answer)

    def watch(self, answer: Answer, moment: str, *, prefill: bool) -> None:
        """A request reached a moment; a fault may be waiting for it there."""
        if moment == "mid":
            due = [f for f in self._faults.on if f.when is When.MID and answer.out >= f.after_tokens]
            if not due:
                return
        fault = self._faults.take(When(moment), prefill=prefill)
        if fault is not None:
            self._happen(fault, answer)

    def _happen(self, fault: Fault, answer: Answer) -> None:
        connection = answer.connection
        match fault.kind:
            case Kind.DROP:
                answer.muted = True
                connection.drop()
            case Kind.HANG:
                answer.muted = True
            case Kind.HALF_OPEN:
                connection.frozen = True
                connection.transport.pause_reading()
            case Kind.STATUS | Kind.ERROR_200 | Kind.ABORT_200:
                self._say_failure(fault, answer)
            case _:
                self._on_fault(fault)

    def _say_failure(self, fault: Fault, answer: Answer) -> None:
        if answer.muted:
            return
        if answer.ask.stream:
            said: dict[str, Any] = ERROR
            if fault.kind is Kind.ABORT_200:
                said = {"choices": [{"index": 0, "text": "", "delta": {}, "finish_reason": "abort"}]}
            answer.fail_stream(said)
        else:
            answer.muted = True
            answer.connection.answer_json(fault.status if fault.kind is Kind.STATUS else 200, ERROR)
        self._lost(answer)


def _nulled(_params: dict[str, Any]) -> None:
    return None


def _elsewhere(params: dict[str, Any]) -> dict[str, Any]:
    return {
        **params,
        "remote_block_ids": [[block + 1 for block in group] for group in params["remote_block_ids"]],
    }
