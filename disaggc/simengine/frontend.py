"""The double's API: which path does what, who may call, and what a fault does to a request. Knows no process."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import Callable

from disaggc.simengine.answers import ERROR, Answer
from disaggc.simengine.asks import Ask, parse_body, read_ask
from disaggc.simengine.demand import usable
from disaggc.simengine.events import Shape, in_anthropics_words
from disaggc.simengine.exchange import KvExchange
from disaggc.simengine.faults import Fault, Faults, Kind, When
from disaggc.simengine.http import Call, Connection
from disaggc.simengine.injection import Injection
from disaggc.simengine.options import Options
from disaggc.simengine.page import metrics_page
from disaggc.simengine.refusal import RefusedError
from disaggc.simengine.scheduler import Scheduler
from disaggc.simengine.sequence import Sequence, Wish
from disaggc.simengine.sundries import SMALL, models

GENERATION = {
    "/v1/completions": "completions",
    "/v1/chat/completions": "chat",
    "/v1/chat/completions/batch": "batch",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
_PREFIXES = {"completions": "cmpl-", "chat": "chatcmpl-", "responses": "resp_", "messages": "msg_"}
_TAIL = re.compile(r"-[0-9a-f]{8}$")
_GUARDED = ("/v1/", "/v2/", "/inference/")
_NEVER = 1 << 30


class Frontend:
    """Everything the HTTP port answers. on_fault: does what a fault does to the process."""

    def __init__(
        self, options: Options, scheduler: Scheduler, exchange: KvExchange | None, *, faults: Faults,
        on_fault: Callable[[Fault], None],
    ) -> None:  # fmt: skip
        self._options, self._scheduler, self._exchange = options, scheduler, exchange
        self._faults = faults
        self._injection = Injection(faults, options.scale, on_fault=on_fault, lost=self._lost)
        self._started = int(time.time())
        self._fingerprint = f"vllm-{options.version}-sim"
        self.open: set[Answer] = set()
        self.dead = False
        """The engine is dead: everything but metrics answers so."""
        self.closed = False
        """Draining: new requests are refused."""

    def route(self, connection: Connection, call: Call) -> None:
        """Answer one request."""
        key = self._options.api_key
        if key and call.path.startswith(_GUARDED) and not self._knows(call, key):
            connection.answer_json(401, {"error": "Unauthorized"})
            return
        api = GENERATION.get(call.path)
        try:
            if api is not None and call.method == "POST":
                self._generate(connection, call, api)
            else:
                self._other(connection, call)
        except RefusedError as refused:
            handled = refused.handled and call.path.startswith("/v1/messages")
            connection.answer_json(
                refused.status, in_anthropics_words(refused.said) if handled else refused.said
            )

    @staticmethod
    def _knows(call: Call, key: str) -> bool:
        given = call.headers.get("authorization", "").removeprefix("Bearer ") or call.headers.get(
            "x-api-key", ""
        )
        return hmac.compare_digest(given.encode(), key.encode())

    # --- generation ---

    def _generate(self, connection: Connection, call: Call, api: str) -> None:
        if self.dead or self.closed:
            connection.answer_json(500, ERROR)
            return
        body = parse_body(call.body)
        params = body.get("kv_transfer_params")
        prefill = isinstance(params, dict) and params.get("do_remote_decode") is True
        fault = self._faults.take(When.ARRIVAL, prefill=prefill)
        if fault is not None and self._injection.at_arrival(fault, connection, body):
            return
        try:
            ask = read_ask(api, body, self._options)
        except RefusedError as refused:
            if refused.handled and isinstance(params, dict) and self._exchange is not None:
                self._exchange.reject(params)
            raise
        request = call.headers.get("x-request-id") or secrets.token_hex(8)
        answer = self._answer(connection, ask, request)
        answer.expected = self._faults.pending
        answer.watch = lambda a, moment: self._moment(a, moment, prefill=prefill)
        if fault is None or fault.kind not in (Kind.NULL_PARAMS, Kind.OTHER_BLOCKS):
            fault = self._faults.take(When.WORKING, prefill=prefill)
        if fault is not None:
            self._injection.while_working(fault, answer)
        if ask.stream and not answer.muted:
            connection.start_stream()
        self._submit(answer, request)

    def _answer(self, connection: Connection, ask: Ask, request: str) -> Answer:
        name = f"{_PREFIXES[ask.api]}{request}"
        shape = Shape(ask, name, created=int(time.time()), fingerprint=self._fingerprint)
        answer = Answer(connection, ask, shape, details=self._options.details)
        connection.on_lost = lambda: self._lost(answer)
        self.open.add(answer)
        return answer

    def _submit(self, answer: Answer, request: str) -> None:
        ask, loop = answer.ask, asyncio.get_running_loop()
        params = ask.params
        dialect = self._exchange.dialect if self._exchange is not None else ""
        if params.get("do_remote_prefill") is True and (not dialect or not usable(params, dialect)):
            params = {}
        wish = Wish(
            max_tokens=ask.max_tokens,
            interval=self._options.stream_interval if ask.stream else _NEVER,
            ends_after=ask.ends_after,
            stopped=answer.stopped if ask.stops or ask.stop_ids else None,
            distinct=ask.distinct and ask.n > 1,
            choices=ask.n,
            params=params,
        )
        for index in range(len(ask.prompts) * ask.n):
            ids = ask.prompts[index // ask.n]
            name = f"{answer.shape.name}-{index}-{secrets.token_hex(4)}"
            sequence = Sequence(name, ids, wish, sink=answer, index=index, arrived=loop.time())
            sequence.key = str(params.get("transfer_id") or f"{answer.shape.name}-{index}")
            if dialect == "nixl-push":
                sequence.key = _TAIL.sub("", f"{_PREFIXES[ask.api]}{request}") + f"-{index}"
            answer.add(sequence)
        for sequence in answer.sequences:
            if wish.fetches and self._exchange is not None:
                self._exchange.expect(sequence)
            self._scheduler.submit(sequence)

    def _lost(self, answer: Answer) -> None:
        """The client went."""
        self.open.discard(answer)
        answer.muted = True
        for sequence in answer.sequences:
            self._scheduler.abort(sequence)

    def _moment(self, answer: Answer, moment: str, *, prefill: bool) -> None:
        if moment == "after":
            self.open.discard(answer)
        self._injection.watch(answer, moment, prefill=prefill)

    # --- everything else ---

    def _other(self, connection: Connection, call: Call) -> None:
        path = call.path
        match path:
            case "/health" | "/ping":
                connection.answer(503 if self.dead else 200, b"", kind="text/plain")
            case "/metrics":
                text = metrics_page(self._options, self._scheduler, self._exchange)
                connection.answer(200, text.encode(), kind="text/plain; version=0.0.4; charset=utf-8")
            case "/version":
                connection.answer_json(200, {"version": self._options.version})
            case "/load":
                connection.answer_json(200, {"server_load": len(self.open)})
            case "/v1/models":
                connection.answer_json(200, models(self._options, self._started))
            case _ if call.method == "POST" and path in SMALL:
                connection.answer_json(200, SMALL[path](parse_body(call.body), self._options))
            case _:
                connection.answer_json(404, {"detail": "Not Found"})
