"""One try of a generation request: decode alone, prefill then decode, or both at once, as the dialect wants.

Says what each answer leads to, and decides nothing about retries.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from disaggc.proxy.accesslog import in_ms
from disaggc.proxy.board import PerClass, PerReplica, Timing
from disaggc.proxy.call import Leg, PrefillLeg
from disaggc.proxy.dialects import handover, params_value, protocol_of
from disaggc.proxy.requests import engine_request
from disaggc.routing.table import Dialect

if TYPE_CHECKING:
    from msgspec import Raw

    from disaggc.proxy.answers import Answer
    from disaggc.proxy.call import Call
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.generation import Generation

_ALONE: Final = protocol_of(Dialect.NIXL)
"""What a request with one leg is sent by: nothing of the protocol is used then."""


class Attempt:
    """The legs of one try."""

    __slots__ = (
        "_begun",
        "_decode_replica",
        "_handed",
        "_protocol",
        "_request",
        "_x",
        "cached",
        "decode",
        "params",
        "prefill",
    )

    def __init__(self, exchange: Generation) -> None:
        self._x = exchange
        self._protocol = _ALONE
        self._request = ""
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
        return self._decode_replica.cohort

    @property
    def remote(self) -> bool:
        """Whether there is a prefill leg."""
        return self.prefill is not None

    def alone(self, decode: Replica, now: float) -> None:
        """One leg: the engine prefills too."""
        x = self._x
        x.service.tally.cells[x.row + PerClass.LOCAL] += 1.0
        self._decode_replica = decode
        self._start_decode(None, x.upstream_id, now)

    def pair(self, prefill: Replica, decode: Replica, now: float) -> None:
        """Two legs."""
        x = self._x
        x.service.tally.cells[x.row + PerClass.REMOTE] += 1.0
        self._decode_replica = decode
        protocol = self._protocol = x.service.bounds.protocol
        request = f"{x.upstream_id}.r{x.tries}" if x.tries else x.upstream_id
        if protocol.always is not None:
            self._request = request
            self._start_prefill(prefill, protocol.always, now)
            return
        hand = handover(protocol, request, prefill.entry, decode=decode.entry)
        self._request = protocol.engine_request_id(hand)
        self._start_prefill(prefill, params_value(protocol.prefill_params(hand)), now)
        if protocol.decode_params is not None:
            self._start_decode(params_value(protocol.decode_params(hand)), self._request, now)

    def _start_prefill(self, prefill: Replica, params: Raw, now: float) -> None:
        x, protocol, bounds = self._x, self._protocol, self._x.service.bounds
        body = x.ask.prefill_body(params, keeps_only_capped=protocol.keeps_only_capped)
        lines = self._ranked(prefill) if protocol.rank_headers else x.lines
        message = engine_request(prefill.target(x.request.path), body, lines=lines, request=self._request)
        x.entry.prefill = prefill.address
        self._begun = now
        prefill.asked(PerReplica.PREFILLS)
        leg = self.prefill = PrefillLeg(x, prefill, bounds)
        x.calls.append(leg)
        leg.start(message, now)

    def _start_decode(self, params: Raw | None, request: str, now: float) -> None:
        x, decode, bounds = self._x, self._decode_replica, self._x.service.bounds
        ask = x.ask
        lines = self._ranked(decode) if params is not None and self._protocol.rank_headers else x.lines
        message = engine_request(
            decode.target(x.request.path), ask.decode_body(params), lines=lines, request=request
        )
        x.entry.decode = decode.address
        terms = bounds.decode_stream if ask.stream else bounds.decode_whole
        if params is None:
            terms = replace(terms, again=True)
        elif self._handed and self._handed + bounds.handoff_s < now + terms.connect_s:
            terms = replace(terms, connect_s=max(0.001, self._handed + bounds.handoff_s - now))
        self._begun = now
        decode.asked(PerReplica.DECODES)
        leg = self.decode = Leg(x, decode, terms)
        x.calls.append(leg)
        leg.start(message, now)

    def _ranked(self, replica: Replica) -> bytes:
        """The header lines with the rank of the engine's KV identity."""
        kv = replica.entry.kv
        return self._x.lines + b"x-data-parallel-rank: %d\r\n" % (kv.dp_rank if kv is not None else 0)

    def answered(self, call: Call, answer: Answer, now: float) -> Answer | None:
        """What a leg's good answer leads to: something for the client, or more waiting."""
        if call is self.prefill:
            return self._prefilled(answer, now)
        x = self._x
        x.times[Timing.DECODE_FIRST].append(now - self._begun)
        if self._handed:
            x.times[Timing.HANDOFF].append(now - self._handed)
            if answer.head.status not in (400, 422):
                self.params = None
        return answer

    def _prefilled(self, answer: Answer, now: float) -> Answer | None:
        x = self._x
        took = now - self._begun
        x.entry.prefill_ms = in_ms(took)
        x.times[Timing.PREFILL].append(took)
        if answer.head.status != 200:
            if self.decode is not None:
                self.decode.drop()  # it would wait for KV that never comes
            return answer
        handed = self.prefill.handed if self.prefill is not None else None
        if handed is None:
            return None  # decode was asked at the same time
        if handed.prompt_tokens:
            x.note_prompt_tokens(handed.prompt_tokens)
        self.params, self.cached, self._handed = handed.params, handed.cached_tokens, now
        self._start_decode(handed.params, self._request, now)
        return None
