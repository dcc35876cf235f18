"""One leg of a request: take a connection, ask, wait within a deadline, judge the answer.

A leg knows its engine and its bytes; which engine and what then is the exchange's.
"""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass

from disaggc.proxy.answers import Answer
from disaggc.proxy.dialects import params_fault
from disaggc.proxy.events import events_of, is_failure, is_suspect, usage_of
from disaggc.proxy.failures import LegError
from disaggc.proxy.fleet import Replica
from disaggc.proxy.framing import BadAnswerError
from disaggc.proxy.members import Pieces
from disaggc.proxy.upstream import Connection
from disaggc.routing.table import Dialect

_DECODER = json.JSONDecoder()
_KV_MEMBER = re.compile(r'"kv_transfer_params"\s*+:\s*+')
_NO_CHOICES = re.compile(rb'"choices"\s*+:\s*+(?:\[\s*\]|null)')
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that say the engine, not the request, is the problem."""


@dataclass(frozen=True, slots=True)
class Message:
    """What an engine is asked."""

    head: bytes
    body: Pieces
    stream: bool


async def send(
    replica: Replica, message: Message, owner: list[Connection], *, connect_s: float, new: bool = False
) -> tuple[Connection, asyncio.Future[Answer]]:
    """Ask the engine on a pooled or a `new` connection, which `owner` gets; the future gives its answer."""
    connection = (None if new else replica.pool.idle()) or await replica.pool.connect(connect_s)
    owner.append(connection)
    return connection, connection.ask(message.head, message.body, owner=owner, stream=message.stream)


def judge_status(answer: Answer) -> None:
    """LegError when the engine failed; other refusals are the client's and are passed on."""
    status = answer.head.status
    if status in RETRYABLE or status >= 500 or status < 200:
        raise LegError("status", status=503 if status in (429, 503) else 502)


def judge_stream(answer: Answer) -> None:
    """LegError when the first bytes of a stream already say that it failed, or are none."""
    data = answer.body
    if answer.ended and b"data:" not in data:
        raise LegError("bad-answer")
    if is_suspect(data):
        with suppress(BadAnswerError):
            if any(is_failure(event) for event in events_of(data)):
                raise LegError("aborted")


def judge_whole(answer: Answer) -> None:
    """LegError for a 200 that carries an error, an abort, or nothing."""
    body = answer.body
    if not body.startswith(b"{"):
        raise LegError("bad-answer")
    if not is_suspect(body) and _NO_CHOICES.search(body) is None:
        return
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise LegError("bad-answer") from None
    if is_failure(said) or ("choices" in said and not said["choices"]):
        raise LegError("aborted")


def handed_over(answer: Answer, dialect: Dialect) -> tuple[bytes, int]:
    """Decode's parameters from a prefill answer, as the member they came in, and the prompt's tokens (0 = not said).

    LegError when prefill did not keep its KV: decode would silently do all the work alone.
    """
    try:
        text = answer.body.decode()
        member = _KV_MEMBER.search(text)
        if member is None:
            raise LegError("no-params")
        params, end = _DECODER.raw_decode(text, member.end())
    except (ValueError, RecursionError):
        raise LegError("bad-answer") from None
    if params_fault(params, dialect) is not None:
        raise LegError("no-params")
    usage = usage_of(answer.body)
    return text[member.start() : end].encode(), usage.prompt if usage else 0
