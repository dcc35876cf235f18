"""The last stretch of a generation request: a judged answer goes to the client, and is counted.

After the first byte there are no retries: a stream that breaks ends with an error event, or, where its framing does
not allow one, with a cut connection, never with a silent stop.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from disaggc.proxy.asks import Api
from disaggc.proxy.board import Length, PerClass, Timing, Total
from disaggc.proxy.events import KV_KEY, Usage, scrub, usage_of
from disaggc.proxy.failures import LegError, RefusedError, Stage
from disaggc.proxy.framing import LAST_CHUNK, chunk
from disaggc.proxy.relay import StreamRelay
from disaggc.proxy.requests import answer_head

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.generation import Generation


async def deliver(x: Generation, answer: Answer) -> None:
    """Send it; returns when the client has everything that the engine said."""
    if answer.head.status == 200 and x.ask.stream and answer.head.chunked:
        await _stream(x, answer)
        return
    body = answer.body
    if KV_KEY in body:
        try:
            body, count = scrub(body)
        except ValueError:
            raise RefusedError(502, "decode failed: bad-answer") from None
        x.service.tally.cells[Total.PARAMS_SCRUBBED] += count
    x.respond(answer.head.status, answer.head.value(b"content-type"), body)
    if answer.head.status == 200:
        took = x.clock() - x.started
        x.service.tally.timing(x.position, Timing.TTFT, took)
        x.entry.ttft_ms = took * 1e3
        _count(x, usage_of(body), 0)


async def _stream(x: Generation, answer: Answer) -> None:
    cells = x.service.tally.cells
    relay = StreamRelay(
        x.front, answer.connection, x.service.tally, position=x.position, hide_usage=x.ask.hide_usage
    )
    x.relay = relay
    x.answered = True
    x.entry.status = 200
    took = x.clock() - x.started
    x.entry.ttft_ms = took * 1e3
    x.service.tally.timing(x.position, Timing.TTFT, took)
    headers = [
        (b"content-type", answer.head.value(b"content-type") or b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"transfer-encoding", b"chunked"),
        (b"x-request-id", x.upstream_id.encode("ascii")),
    ]
    cells[Total.STREAMS_OPEN] += 1
    x.request.body = b""
    x.ask.body = b""
    try:
        relay.start(
            answer_head(200, headers, keep_alive=x.request.keep_alive), answer.body, ended=answer.ended
        )
        if not relay.done.done():
            await x.within(Stage.STREAM, x.service.table.timeouts.total_s, relay.done)
        else:
            relay.done.result()
    except LegError as error:
        _break(x, relay, error)
    finally:
        cells[Total.STREAMS_OPEN] -= 1
        cells[Total.TOKENS_SO_FAR] -= relay.tokens
    _count(x, relay.usage, relay.tokens)


def _break(x: Generation, relay: StreamRelay, error: LegError) -> None:
    """The stream cannot be completed: say so in the stream."""
    x.holding.failed(x.clock())
    x.entry.outcome = "broken"
    if not relay.may_inject:
        x.entry.outcome = "cut"
        x.front.abort()
        return
    x.front.write(chunk(error_event(x.api, error)) + LAST_CHUNK)


def error_event(api: Api, error: LegError) -> bytes:
    """The event by which clients of that API learn that a stream failed."""
    message = f"decode failed while streaming: {error.reason}"
    match api:
        case Api.MESSAGES:
            said = {"type": "error", "error": {"type": "api_error", "message": message}}
            return b"event: error\ndata: " + json.dumps(said).encode() + b"\n\n"
        case Api.RESPONSES:
            said = {"type": "error", "code": "upstream_error", "message": message}
            return b"event: error\ndata: " + json.dumps(said).encode() + b"\n\n"
        case _:
            said = {
                "error": {"message": message, "type": "upstream_error", "param": None, "code": error.status}
            }
            return b"data: " + json.dumps(said).encode() + b"\n\n"


def _count(x: Generation, usage: Usage | None, events: int) -> None:
    tally, position = x.service.tally, x.position
    if usage is not None and usage.prompt:
        x.note_prompt_tokens(usage.prompt)
    inputs = x.entry.input_tokens or round(x.prompt_tokens)
    outputs = usage.completion if usage is not None else events
    x.entry.input_tokens, x.entry.output_tokens = inputs, outputs
    tally.by_class(position, PerClass.TOKENS_IN, inputs)
    tally.by_class(position, PerClass.TOKENS_OUT, outputs)
    tally.length(position, Length.INPUT, inputs)
    if x.entry.outcome == "":
        tally.length(position, Length.OUTPUT, outputs)
        x.service.learn_output(outputs)
    if usage is not None:
        tally.by_class(position, PerClass.TOKENS_CACHED, usage.cached)
