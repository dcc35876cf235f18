"""Whether an engine's answer is one: what failed although it says 200, and what a prefill hands over. No sockets."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from disaggc.proxy.answers import Answer
from disaggc.proxy.engine_json import TOKENS_END, Kept, Prefilled, Whole
from disaggc.proxy.events import (
    cached_of,
    events_of,
    is_complete,
    is_failed,
    is_failure,
    may_have_failed,
    notable_in,
    prompt_of,
)
from disaggc.proxy.failures import LegError
from disaggc.proxy.members import encode
from disaggc.routing.table import Dialect

_NO_CHOICES: Final = re.compile(rb'"choices"\s*+:\s*+(?:\[\s*\]|null)')
_NIXL: Final = Dialect.NIXL
RETRYABLE: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
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


_WHOLE: Final = msgspec.json.Decoder(Whole)
_PREFILLED: Final = msgspec.json.Decoder(Prefilled)


def _has_failed(said: Whole) -> bool:
    """As `is_failure`, of an answer in one piece."""
    if said.error or is_failed(said.type) or is_failed(said.status) or is_failed(said.stop_reason):
        return True
    for choice in said.choices or ():  # noqa: SIM110 - `any` costs 1.4 us
        if is_failed(choice.finish_reason):
            return True
    return False


def _is_complete(kept: Kept) -> bool:
    """Whether decode can fetch by it: as `params_fault`."""
    return (
        kept.do_remote_prefill is True
        and kept.remote_engine_id is not None
        and kept.remote_host is not None
        and kept.remote_port is not None
        and bytes(kept.remote_block_ids) not in _NOTHING
    )


def _whole_fault(body: bytes) -> LegError | None:
    """A 200 that carries an error, an abort, or nothing."""
    try:
        said = _WHOLE.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return LegError("bad-answer")
    if _has_failed(said):
        return LegError("aborted")
    if said.choices is not UNSET:
        return None if said.choices else LegError("aborted")
    return None if said.output or said.content else LegError("bad-answer")


_KEPT: Final = msgspec.json.Decoder(Kept)
_MEMBERS: Final = msgspec.json.Decoder(dict[str, Raw])
_NULL: Final = b"null"
_NOTHING: Final = frozenset({b"null", b"[]", b"[[]]"})


class Handed:
    """What a prefill hands over."""

    __slots__ = ("cached_tokens", "params", "prompt_tokens")

    def __init__(self, params: Raw, prompt_tokens: int, cached_tokens: int | None) -> None:
        self.params = params
        """Decode's parameters, each value byte for byte, with the prompt's token ids where prefill gave them."""
        self.prompt_tokens = prompt_tokens
        """0 = not said."""
        self.cached_tokens = cached_tokens
        """Prompt tokens that prefill had cached; None = not said."""


def handed_over(body: bytes, dialect: Dialect) -> Handed | LegError:
    """Decode's parameters from a prefill answer.

    LegError when prefill failed, or did not keep its KV: decode would silently do all the work alone.
    """
    try:
        said = _PREFILLED.decode(body)
        params, ids = said.kv_transfer_params, said.prompt_token_ids
        if _has_failed(said):
            return LegError("aborted")
        if bytes(params) == _NULL:
            return LegError("no-params")
        kept = _KEPT.decode(params)
        if len(ids) > len(_NULL):
            params = Raw(encode({**_MEMBERS.decode(params), "prompt_token_ids": ids}))
    except (msgspec.DecodeError, RecursionError):
        return LegError("bad-answer")
    if dialect is _NIXL and not _is_complete(kept):
        return LegError("no-params")
    usage, cached = said.usage, kept.remote_prefill_cached_tokens
    if not (isinstance(cached, int) and 0 <= cached < TOKENS_END):
        cached = cached_of(usage) if usage is not None else None
    return Handed(params, prompt_of(usage) if usage is not None else 0, cached)
