"""The double's API: which path does what, who may call, and what a fault does to a request. Knows no process."""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from disaggc.simengine.answers import ERROR, Answer
from disaggc.simengine.asks import Ask, RefusedError, conversation, parse_body, read_ask
from disaggc.simengine.demand import usable
from disaggc.simengine.exchange import KvExchange
from disaggc.simengine.faults import Fault, Faults, Kind, When
from disaggc.simengine.http import Call, Connection
from disaggc.simengine.options import Options
from disaggc.simengine.page import metrics_page
from disaggc.simengine.scheduler import Scheduler
from disaggc.simengine.sequence import Sequence, Wish
from disaggc.simengine.shapes import Shape
from disaggc.simengine.tokens import detokenize, tokenize

GENERATION = {
    "/v1/completions": "completions",
    "/v1/chat/completions": "chat",
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
        self._faults, self._on_fault = faults, on_fault
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
            connection.answer_json(refused.status, refused.said)

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
        if fault is not None and self._at_arrival(fault, connection, body):
            return
        try:
            ask = read_ask(api, body, self._options)
        except RefusedError as refused:
            if refused.handled and isinstance(params, dict) and self._exchange is not None:
                self._exchange.reject(params)
            raise
        request = call.headers.get("x-request-id") or secrets.token_hex(8)
        answer = self._answer(connection, ask, api, request)
        answer.watch = lambda a, moment: self._watch(a, moment, prefill)
        if fault is None or fault.kind not in (Kind.NULL_PARAMS, Kind.OTHER_BLOCKS):
            fault = self._faults.take(When.WORKING, prefill=prefill)
        if fault is not None:
            self._while_working(fault, answer)
        if ask.stream and not answer.muted:
            connection.start_stream()
        self._submit(answer, request)

    def _answer(self, connection: Connection, ask: Ask, api: str, request: str) -> Answer:
        name = f"{_PREFIXES[api]}{request}"
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

    # --- faults ---

    def _at_arrival(self, fault: Fault, connection: Connection, body: dict[str, Any]) -> bool:
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

    def _while_working(self, fault: Fault, answer: Answer) -> None:
        if fault.kind in (Kind.NULL_PARAMS, Kind.OTHER_BLOCKS):
            answer.change_params = _nulled if fault.kind is Kind.NULL_PARAMS else _elsewhere
            return
        asyncio.get_running_loop().call_later(
            fault.seconds / self._options.scale, self._happen, fault, answer
        )

    def _watch(self, answer: Answer, moment: str, prefill: bool) -> None:  # noqa: FBT001 - what the request is
        """A request reached a moment; a fault may be waiting for it there."""
        if moment == "after":
            self.open.discard(answer)
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

    # --- everything else ---

    def _other(self, connection: Connection, call: Call) -> None:
        path = call.path
        if path in ("/health", "/ping"):
            connection.answer(503 if self.dead else 200, b"", kind="text/plain")
        elif path == "/metrics":
            text = metrics_page(self._options, self._scheduler, self._exchange)
            connection.answer(200, text.encode(), kind="text/plain; version=0.0.4; charset=utf-8")
        elif path == "/version":
            connection.answer_json(200, {"version": self._options.version})
        elif path == "/load":
            connection.answer_json(200, {"server_load": len(self.open)})
        elif path == "/v1/models":
            connection.answer_json(
                200, {"object": "list", "data": [self._model(name) for name in self._options.served]}
            )
        elif call.method == "POST" and path in ("/tokenize", "/detokenize", "/v1/embeddings"):
            connection.answer_json(200, self._small(path, parse_body(call.body)))
        else:
            connection.answer_json(404, {"detail": "Not Found"})

    def _model(self, name: str) -> dict[str, Any]:
        root = self._options.model
        return {
            "id": name, "object": "model", "created": self._started, "owned_by": "vllm", "root": root, "parent": None,
            "max_model_len": self._options.max_model_len, "permission": [],
        }  # fmt: skip

    def _small(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/detokenize":
            return {"prompt": detokenize([int(t) for t in body.get("tokens") or ()])}
        if path == "/tokenize":
            text = body["prompt"] if isinstance(body.get("prompt"), str) else conversation("chat", body)
            ids = list(tokenize(text))
            return {
                "count": len(ids),
                "max_model_len": self._options.max_model_len,
                "tokens": ids,
                "token_strs": None,
            }
        given = body.get("input")
        texts = given if isinstance(given, list) else [given]
        rows = [
            {
                "index": i,
                "object": "embedding",
                "embedding": [b / 255 for b in blake2b(json.dumps(t).encode()).digest()[:16]],
            }
            for i, t in enumerate(texts)
        ]
        count = sum(len(tokenize(str(t))) for t in texts)
        usage = {
            "prompt_tokens": count,
            "total_tokens": count,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
        }
        return {
            "id": "embd-0",
            "object": "list",
            "model": self._options.served[0],
            "data": rows,
            "usage": usage,
        }


def _nulled(_params: dict[str, Any]) -> None:
    return None


def _elsewhere(params: dict[str, Any]) -> dict[str, Any]:
    return {
        **params,
        "remote_block_ids": [[block + 1 for block in group] for group in params["remote_block_ids"]],
    }
