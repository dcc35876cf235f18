"""Whether an engine's answer is one: what failed although it says 200, and what a prefill hands over. No sockets."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from disaggc.proxy.answers import Answer
from disaggc.proxy.dialects import params_fault
from disaggc.proxy.events import events_of, is_failure, is_suspect, usage_of
from disaggc.proxy.failures import LegError
from disaggc.proxy.framing import BadAnswerError
from disaggc.routing.table import Dialect

_NO_CHOICES = re.compile(rb'"choices"\s*+:\s*+(?:\[\s*\]|null)')
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that say the engine, not the request, is the problem."""


def fault_of(answer: Answer) -> LegError | None:
    """Why the engine failed this answer; None for good ones and for refusals that are the client's."""
    status = answer.head.status
    if status != 200:
        if status in RETRYABLE or status >= 500 or status < 200:
            return LegError("status", status=503 if status in (429, 503) else 502)
        return None
    return _stream_fault(answer) if answer.framed else _whole_fault(answer.body)


def _stream_fault(answer: Answer) -> LegError | None:
    """The first bytes of a stream already say that it failed, or it ended and had none."""
    data = answer.body
    if answer.ended and b"data:" not in data:
        return LegError("bad-answer")
    if is_suspect(data):
        try:
            if any(is_failure(event) for event in events_of(data)):
                return LegError("aborted")
        except BadAnswerError:
            return None
    return None


def _whole_fault(body: bytes) -> LegError | None:
    """A 200 that carries an error, an abort, or nothing."""
    if not body.startswith(b"{"):
        return LegError("bad-answer")
    if not is_suspect(body) and _NO_CHOICES.search(body) is None:
        return None
    try:
        said = _ANYTHING.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return LegError("bad-answer")
    if is_failure(said) or ("choices" in said and not said["choices"]):
        return LegError("aborted")
    return None


class Handed(NamedTuple):
    """What a prefill hands over."""

    params: Raw
    """Decode's parameters, byte for byte, with the prompt's token ids where prefill gave them."""
    prompt_tokens: int
    """0 = not said."""
    cached_tokens: int | None
    """Prompt tokens that prefill had cached; None = not said."""


class _Prefilled(msgspec.Struct):
    kv_transfer_params: Raw = Raw(b"null")
    prompt_token_ids: Raw = Raw(b"null")


_PREFILLED = msgspec.json.Decoder(_Prefilled)
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def handed_over(body: bytes, dialect: Dialect) -> Handed | LegError:
    """Decode's parameters from a prefill answer.

    LegError when prefill did not keep its KV: decode would silently do all the work alone.
    """
    try:
        said = _PREFILLED.decode(body)
        params = _ANYTHING.decode(said.kv_transfer_params)
    except (msgspec.DecodeError, RecursionError):
        return LegError("bad-answer")
    if params_fault(params, dialect) is not None:
        return LegError("no-params")
    text = bytes(said.kv_transfer_params)
    if bytes(memoryview(said.prompt_token_ids)[:1]) == b"[" and params:
        text = b'%b,"prompt_token_ids":%b}' % (text[:-1], bytes(said.prompt_token_ids))
    usage = usage_of(body)
    cached = params.get("remote_prefill_cached_tokens")
    if not isinstance(cached, int):
        cached = usage.cached if usage is not None else None
    return Handed(Raw(text), usage.prompt if usage is not None else 0, cached)
