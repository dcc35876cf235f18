"""One try of a generation request: decode alone, prefill then decode, or both at once, as the dialect wants.

Says what each answer leads to, and decides nothing about retries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.proxy.board import PerClass, PerReplica, Timing
from disaggc.proxy.call import Leg, PrefillLeg
from disaggc.proxy.dialects import Handover, Protocol, handover, params_value, protocol_of
from disaggc.proxy.failures import LegError, Stage
from disaggc.proxy.requests import engine_request
from disaggc.proxy.verdicts import handed_over
from disaggc.routing.table import Dialect

if TYPE_CHECKING:
    from msgspec import Raw

    from disaggc.proxy.answers import Answer
    from disaggc.proxy.call import Call
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.generation import Generation

_ALONE = protocol_of(Dialect.NIXL)
"""What a request with one leg is sent by: nothing of the protocol is used then."""


class Attempt:
    """The legs of one try."""

    __slots__ = (
        "_begun",
        "_decode_replica",
        "_hand",
        "_handed",
        "_protocol",
        "_x",
        "cached",
        "decode",
        "params",
        "prefill",
    )

    def __init__(self, exchange: Generation) -> None:
        self._x = exchange
        self._protocol = _ALONE
        self._hand: Handover
        self._decode_replica: Replica
        self._begun = 0.0
        self._handed = 0.0
        self.prefill: PrefillLeg | None = None
        self.decode: Leg | None = None
        self.params: Raw | None = None
        """What prefill keeps for decode, until decode has taken it."""
        self.cached: int | None = None
        """Prompt tokens prefill had cached; None = it did not say."""

    @property
    def cohort(self) -> str:
        """Whose decode engines can release what prefill keeps."""
        return self._decode_replica.entry.cohort

    @property
    def remote(self) -> bool:
        """Whether there is a prefill leg."""
        return self.prefill is not None

    def alone(self, decode: Replica, now: float) -> None:
        """One leg: the engine prefills too."""
        x = self._x
        x.service.tally.by_class(x.position, PerClass.LOCAL)
        self._decode_replica = decode
        self._start_decode(None, x.upstream_id, now)

    def pair(self, prefill: Replica, decode: Replica, now: float) -> None:
        """Two legs."""
        x = self._x
        x.service.tally.by_class(x.position, PerClass.REMOTE)
        self._decode_replica = decode
        protocol = self._protocol = protocol_of(x.service.table.dialect)
        request = f"{x.upstream_id}.r{x.tries}" if x.tries else x.upstream_id
        hand = self._hand = handover(protocol, request, prefill.entry, decode=decode.entry)
        self._start_prefill(prefill, protocol, now)
        if protocol.concurrent:
            params = params_value(protocol.decode_params(hand)) if protocol.decode_params else None
            self._start_decode(params, protocol.engine_request_id(hand), now)

    def _start_prefill(self, prefill: Replica, protocol: Protocol, now: float) -> None:
        x, hand, limits = self._x, self._hand, self._x.service.table.timeouts
        body = x.ask.prefill_body(
            params_value(protocol.prefill_params(hand)), keeps_only_capped=protocol.keeps_only_capped
        )
        message = engine_request(
            prefill.target(x.request.path), body, lines=self._lines(prefill, protocol),
            request=protocol.engine_request_id(hand),
        )  # fmt: skip
        x.entry.prefill = prefill.address
        self._begun = now
        prefill.count(PerReplica.PREFILLS)
        heirs = x if protocol.answers else None
        leg = self.prefill = PrefillLeg(x, prefill, last=x.last, tokens=x.prompt_tokens, heirs=heirs)
        x.calls.append(leg)
        leg.start(
            message, now, seconds=limits.prefill_s, connect_s=limits.connect_s, again=not protocol.concurrent
        )

    def _start_decode(self, params: Raw | None, request: str, now: float) -> None:
        x, decode, limits = self._x, self._decode_replica, self._x.service.table.timeouts
        ask = x.ask
        lines = x.lines if params is None else self._lines(decode, self._protocol)
        message = engine_request(
            decode.target(x.request.path), ask.decode_body(params), lines=lines, request=request
        )
        x.entry.decode = decode.address
        connect_s = limits.connect_s
        if self._handed:
            connect_s = min(connect_s, max(0.001, self._handed + limits.handoff_s - now))
        self._begun = now
        decode.count(PerReplica.DECODES)
        leg = self.decode = Leg(x, decode, Stage.FIRST_BYTE, last=x.last)
        x.calls.append(leg)
        leg.start(
            message, now, seconds=limits.first_byte_s if ask.stream else limits.total_s, connect_s=connect_s,
            stream=ask.stream, again=params is None,
        )  # fmt: skip

    def _lines(self, replica: Replica, protocol: Protocol) -> bytes:
        kv = replica.entry.kv
        if protocol.rank_headers and kv is not None:
            return self._x.lines + b"x-data-parallel-rank: %d\r\n" % kv.dp_rank
        return self._x.lines

    def answered(self, call: Call, answer: Answer, now: float) -> Answer | LegError | None:
        """What a leg's good answer leads to: something for the client, a failure after all, or more waiting."""
        if call is self.prefill:
            return self._prefilled(answer, now)
        x = self._x
        x.service.tally.timing(x.position, Timing.DECODE_FIRST, now - self._begun)
        if self._handed:
            x.service.tally.timing(x.position, Timing.HANDOFF, now - self._handed)
            if answer.head.status not in (400, 422):
                self.params = None
        return answer

    def _prefilled(self, answer: Answer, now: float) -> Answer | LegError | None:
        x = self._x
        took = now - self._begun
        x.entry.prefill_ms = took * 1e3
        x.service.tally.timing(x.position, Timing.PREFILL, took)
        if answer.head.status != 200:
            if self.decode is not None:
                self.decode.drop()  # it would wait for KV that never comes
            return answer
        if not self._protocol.answers:
            return None
        handed = handed_over(answer.body, x.service.table.dialect)
        if isinstance(handed, LegError):
            handed.prefill = True
            call = self.prefill
            if call is not None:
                call.replica.failed(now)
            return handed
        if handed.prompt_tokens:
            x.note_prompt_tokens(handed.prompt_tokens)
        self.params, self.cached, self._handed = handed.params, handed.cached_tokens, now
        self._start_decode(handed.params, self._protocol.engine_request_id(self._hand), now)
        return None
