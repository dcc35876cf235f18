"""Whether an engine's answer is one: what failed although it says 200, and what a prefill hands over. No sockets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from disaggc.proxy.answers import Answer
from disaggc.proxy.dialects import REQUIRED
from disaggc.proxy.events import events_of, is_complete, is_failure, is_suspect
from disaggc.proxy.failures import LegError
from disaggc.routing.table import Dialect

_NO_CHOICES = re.compile(rb'"choices"\s*+:\s*+(?:\[\s*\]|null)')
_EMPTY = re.compile(rb"\[\s*\]|null")
_NIXL = Dialect.NIXL
RETRYABLE = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses that say the engine, not the request, is the problem."""


def fault_of(answer: Answer) -> LegError | None:
    """Why the engine failed this answer; None for good ones and for refusals that are the client's."""
    status = answer.head.status
    if status != 200:
        if status in RETRYABLE or not 400 <= status < 500:  # 204 or 302 generate nothing either
            return LegError("status", status=503 if status in (429, 503) else 502)
        return None
    if answer.framed:
        return _stream_fault(answer)
    if answer.head.event_stream:
        # the two did not agree on what was asked: who asked may be why
        return LegError("bad-answer", blame=False)
    return _whole_fault(answer.body)


def has_begun(framed: bytes) -> bool:
    """Whether the first events of a stream hold one that says something: what comes before can still be retried."""
    if framed.count(b"data: {") > len(_NO_CHOICES.findall(framed)):
        return True
    return any(event.get("choices", True) for event in events_of(framed))


def _stream_fault(answer: Answer) -> LegError | None:
    """The first events already say that it failed, or it ended and had none, or had no end."""
    data = answer.body
    if is_suspect(data) and any(is_failure(event) for event in events_of(data)):
        return LegError("aborted")
    if answer.ended and not (has_begun(data) and is_complete(data)):
        return LegError("bad-answer")
    return None


class _Whole(msgspec.Struct):
    """What the calls that generate answer with, by API."""

    choices: Raw = Raw()
    output: Raw = Raw()
    content: Raw = Raw()


def _whole_fault(body: bytes) -> LegError | None:
    """A 200 that carries an error, an abort, or nothing."""
    try:
        said = _WHOLE.decode(body)
        if is_suspect(body) and is_failure(_ANYTHING.decode(body)):
            return LegError("aborted")
    except (ValueError, RecursionError):
        return LegError("bad-answer")
    if said.choices:
        return LegError("aborted") if _EMPTY.fullmatch(said.choices) else None
    return None if said.output or said.content else LegError("bad-answer")


class Handed(NamedTuple):
    """What a prefill hands over."""

    params: Raw
    """Decode's parameters, each value byte for byte, with the prompt's token ids where prefill gave them."""
    prompt_tokens: int
    """0 = not said."""
    cached_tokens: int | None
    """Prompt tokens that prefill had cached; None = not said."""


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    input_tokens: int = 0
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None

    @property
    def cached(self) -> int | None:
        """Prompt tokens that were cached, whatever the API calls them."""
        details = self.prompt_tokens_details or self.input_tokens_details
        return details.cached_tokens if details is not None else self.cache_read_input_tokens


class _Prefilled(msgspec.Struct):
    kv_transfer_params: dict[str, Raw] | None = None
    prompt_token_ids: Raw = Raw(b"null")
    usage: _Usage | None = None


_PREFILLED = msgspec.json.Decoder(_Prefilled)
_WHOLE = msgspec.json.Decoder(_Whole)
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_encode = msgspec.json.Encoder().encode
_NULL = b"null"
_NOTHING = frozenset({b"null", b"[]", b"[[]]"})


def handed_over(body: bytes, dialect: Dialect) -> Handed | LegError:
    """Decode's parameters from a prefill answer.

    LegError when prefill failed, or did not keep its KV: decode would silently do all the work alone.
    """
    if is_suspect(body) and (fault := _whole_fault(body)) is not None:
        return fault
    try:
        said = _PREFILLED.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return LegError("bad-answer")
    params, usage = said.kv_transfer_params, said.usage
    if params is None or (dialect is _NIXL and not _complete(params)):
        return LegError("no-params")
    cached = usage.cached if usage is not None else None
    if "remote_prefill_cached_tokens" in params:
        told = _ANYTHING.decode(params["remote_prefill_cached_tokens"])
        cached = told if isinstance(told, int) else cached
    if len(said.prompt_token_ids) > len(_NULL):
        params["prompt_token_ids"] = said.prompt_token_ids
    tokens = usage.prompt_tokens or usage.input_tokens if usage is not None else 0
    return Handed(Raw(_encode(params)), tokens, cached)


def _complete(params: Mapping[str, Raw]) -> bool:
    """Whether decode can fetch by them; as `params_fault`, without decoding the lists of blocks."""
    for name in REQUIRED:
        value = params.get(name)
        if value is None or bytes(value) in _NOTHING:
            return False
    done = params.get("do_remote_prefill")
    return done is not None and bytes(done) == b"true"
