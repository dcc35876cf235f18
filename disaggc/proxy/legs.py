"""One leg of a request: take a connection, ask, wait within a deadline, judge the answer.

A leg knows its engine and its bytes; which engine and what then is the exchange's.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from disaggc.proxy.dialects import params_fault
from disaggc.proxy.events import KV_KEY, SUSPECTS, events_of, is_failure
from disaggc.proxy.failures import LegError
from disaggc.proxy.fleet import Replica
from disaggc.proxy.framing import BadAnswerError
from disaggc.proxy.members import NotAnObjectError, members
from disaggc.proxy.upstream import Answer, Connection
from disaggc.routing.table import Dialect

RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that say the engine, not the request, is the problem."""


@dataclass(frozen=True, slots=True)
class Message:
    """What an engine is asked."""

    head: bytes
    body: bytes
    stream: bool


async def send(
    replica: Replica, message: Message, owner: list[Connection], *, connect_s: float, new: bool = False
) -> tuple[Connection, asyncio.Future[Answer]]:
    """Ask the engine on a pooled or a `new` connection, which `owner` gets; the future gives its answer."""
    connection = await replica.pool.take(timeout_s=connect_s, new=new)
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
    if any(mark in data for mark in SUSPECTS):
        with suppress(BadAnswerError):
            if any(is_failure(event) for event in events_of(data)):
                raise LegError("aborted")


def judge_whole(answer: Answer) -> None:
    """LegError for a 200 that carries an error, an abort, or nothing."""
    body = answer.body
    if not body.lstrip()[:1] == b"{":
        raise LegError("bad-answer")
    suspicious = (
        any(mark in body for mark in SUSPECTS) or b'"choices":[]' in body or b'"choices":null' in body
    )
    if not suspicious and b'"choices": ' not in body:
        return
    try:
        said = json.loads(body)
    except ValueError:
        raise LegError("bad-answer") from None
    if is_failure(said) or ("choices" in said and not said["choices"]):
        raise LegError("aborted")


def handed_over(answer: Answer, dialect: Dialect) -> tuple[bytes, dict[str, Any]]:
    """Decode's parameters from a prefill answer, as the bytes they came in, and the rest decoded.

    LegError when prefill did not keep its KV: decode would silently do all the work alone.
    """
    try:
        found = {m.key: m for m in members(answer.body)}
    except NotAnObjectError:
        raise LegError("bad-answer") from None
    said: dict[str, Any] = {}
    for key in ("choices", "usage", "status", "error", "type", "kv_transfer_params"):
        if key in found:
            try:
                said[key] = json.loads(answer.body[found[key].value : found[key].end])
            except ValueError:
                raise LegError("bad-answer") from None
    if is_failure(said):
        raise LegError("aborted")
    if params_fault(said.get("kv_transfer_params"), dialect) is not None:
        raise LegError("no-params")
    member = found["kv_transfer_params"]
    return KV_KEY + b":" + answer.body[member.value : member.end], said
