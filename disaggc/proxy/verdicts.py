"""Whether an engine's answer is one: what failed although it says 200, and what a prefill hands over. No sockets."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from disaggc.proxy.answers import Answer
from disaggc.proxy.events import (
    Counts,
    events_of,
    is_complete,
    is_failed,
    is_failure,
    may_have_failed,
    notable_in,
)
from disaggc.proxy.failures import LegError
from disaggc.proxy.members import encode
from disaggc.routing.table import Dialect

_NO_CHOICES = re.compile(rb'"choices"\s*+:\s*+(?:\[\s*\]|null)')
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
    if b'"choices":[{' in framed or framed.count(b"data: {") > len(_NO_CHOICES.findall(framed)):
        return True
    return any(event.get("choices", True) for event in events_of(framed))


def _stream_fault(answer: Answer) -> LegError | None:
    """The first events already say that it failed, or it ended and had none, or had no end."""
    data = answer.body
    words = answer.words = notable_in(data)
    if words and may_have_failed(words) and any(is_failure(event) for event in events_of(data)):
        return LegError("aborted")
    if answer.ended and not (has_begun(data) and is_complete(data)):
        return LegError("bad-answer")
    return None


class _Choice(msgspec.Struct):
    finish_reason: Any = None


class _Whole(msgspec.Struct):
    """What the calls that generate answer with, by every API."""

    error: Any = None
    type: Any = None
    status: Any = None
    stop_reason: Any = None
    choices: list[_Choice] | UnsetType | None = UNSET
    output: Raw = Raw()
    content: Raw = Raw()

    def failed(self) -> bool:
        """As `is_failure`, of an answer in one piece."""
        if self.error or is_failed(self.type) or is_failed(self.status) or is_failed(self.stop_reason):
            return True
        for choice in self.choices or ():  # noqa: SIM110 - `any` costs 1.4 us
            if is_failed(choice.finish_reason):
                return True
        return False


class _Prefilled(_Whole):
    """The same of prefill, with what it hands over."""

    kv_transfer_params: Raw = Raw(b"null")
    prompt_token_ids: Raw = Raw(b"null")
    usage: Counts | None = None


_WHOLE = msgspec.json.Decoder(_Whole)
_PREFILLED = msgspec.json.Decoder(_Prefilled)


def _whole_fault(body: bytes) -> LegError | None:
    """A 200 that carries an error, an abort, or nothing."""
    try:
        said = _WHOLE.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return LegError("bad-answer")
    if said.failed():
        return LegError("aborted")
    if said.choices is not UNSET:
        return None if said.choices else LegError("aborted")
    return None if said.output or said.content else LegError("bad-answer")


class _Kept(msgspec.Struct):
    """What prefill says of the KV it keeps, as far as it matters here; the lists of blocks are not decoded."""

    remote_block_ids: Raw = Raw(b"null")
    remote_engine_id: Any = None
    remote_host: Any = None
    remote_port: Any = None
    do_remote_prefill: Any = None
    remote_prefill_cached_tokens: Any = None

    def complete(self) -> bool:
        """Whether decode can fetch by it: as `params_fault`."""
        return (
            self.do_remote_prefill is True
            and self.remote_engine_id is not None
            and self.remote_host is not None
            and self.remote_port is not None
            and bytes(self.remote_block_ids) not in _NOTHING
        )


_KEPT = msgspec.json.Decoder(_Kept)
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_NULL = b"null"
_NOTHING = frozenset({b"null", b"[]", b"[[]]"})


class Handed(msgspec.Struct):
    """What a prefill hands over."""

    params: Raw
    """Decode's parameters, each value byte for byte, with the prompt's token ids where prefill gave them."""
    prompt_tokens: int
    """0 = not said."""
    cached_tokens: int | None
    """Prompt tokens that prefill had cached; None = not said."""


def handed_over(body: bytes, dialect: Dialect) -> Handed | LegError:
    """Decode's parameters from a prefill answer.

    LegError when prefill failed, or did not keep its KV: decode would silently do all the work alone.
    """
    try:
        said = _PREFILLED.decode(body)
        params, ids = said.kv_transfer_params, said.prompt_token_ids
        if said.failed():
            return LegError("aborted")
        if bytes(params) == _NULL:
            return LegError("no-params")
        kept = _KEPT.decode(params)
        if len(ids) > len(_NULL):
            params = Raw(encode({**_MEMBERS.decode(params), "prompt_token_ids": ids}))
    except (msgspec.DecodeError, RecursionError):
        return LegError("bad-answer")
    if dialect is _NIXL and not kept.complete():
        return LegError("no-params")
    usage, cached = said.usage, kept.remote_prefill_cached_tokens
    if not isinstance(cached, int):
        cached = usage.cached if usage is not None else None
    return Handed(params, usage.prompt if usage is not None else 0, cached)
