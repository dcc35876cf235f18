"""The last stretch of a generation request: a good answer goes to the client, and is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.proxy.accesslog import in_ms
from disaggc.proxy.board import Length, PerClass, Timing, Total
from disaggc.proxy.engine_json import Usage
from disaggc.proxy.events import KV_KEY, cached_tokens_as, scrub, usage_of
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.stream import Changes, Stream

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.attempt import Attempt
    from disaggc.proxy.generation import Generation


def deliver_whole(x: Generation, answer: Answer, now: float) -> None:
    """Send a whole answer."""
    body, status = answer.body, answer.head.status
    if KV_KEY in body:
        try:
            body, count = scrub(body)
        except ValueError:
            raise RefusedError(502, "decode failed: bad-answer") from None
        x.service.tally.cells[Total.PARAMS_SCRUBBED] += count
    if x.remote and status == 200 and x.attempt is not None:
        body = cached_tokens_as(body, x.attempt.cached)
    x.respond(status, answer.head.content_type, body)
    if status == 200:
        _note_first(x, now)
        count_tokens(x, usage_of(answer.body), 0)


def open_stream(x: Generation, answer: Answer, now: float) -> None:
    """Send the head and the first chunks; the rest goes from callback to callback."""
    attempt = x.attempt
    x.replied = True
    x.entry.status = 200
    _note_first(x, now)
    x.service.tally.cells[Total.STREAMS_OPEN] += 1
    cached = attempt.cached if attempt is not None else None
    changes = Changes(x.api, hide_usage=x.ask.hide_usage, remote=x.remote, cached=cached)
    stream = x.stream = Stream(x, changes)
    x.ask.found = {}
    stream.start(_stream_head(x, answer), answer)


def _stream_head(x: Generation, answer: Answer) -> bytes:
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n"
        b"x-request-id: %b\r\n%b\r\n"
    ) % (
        answer.head.content_type, x.upstream_id.encode("ascii"),
        b"" if x.request.keep_alive else b"connection: close\r\n",
    )  # fmt: skip


def _note_first(x: Generation, now: float) -> None:
    took = now - x.started
    x.entry.ttft_ms = in_ms(took)
    x.times[Timing.TTFT].append(took)


def count_tokens(x: Generation, usage: Usage | None, events: int) -> None:
    """Into counters, sketches and the log; `events` where the engine does not say how many."""
    tally, position, entry = x.service.tally, x.position, x.entry
    if usage is not None and usage.prompt:
        x.note_prompt_tokens(usage.prompt)
    inputs = entry.input_tokens = entry.input_tokens or round(x.prompt_tokens)
    outputs = entry.output_tokens = usage.completion if usage is not None else events
    cells, row = tally.cells, x.row
    cells[row + PerClass.TOKENS_IN] += inputs
    cells[row + PerClass.TOKENS_OUT] += outputs
    lengths = tally.lengths[position]
    lengths[Length.INPUT].append(inputs)
    if entry.outcome == "":
        lengths[Length.OUTPUT].append(outputs)
        x.service.learn_output(outputs)
    cells[row + PerClass.TOKENS_CACHED] += _cached(x.attempt, usage)


def _cached(attempt: Attempt | None, usage: Usage | None) -> int:
    """Prompt tokens that did not have to be computed: prefill's, where there was one, as decode fetched the rest."""
    if attempt is not None and attempt.remote:
        return attempt.cached or 0
    return usage.cached if usage is not None else 0
