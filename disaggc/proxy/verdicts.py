"""Whether an engine's answer is one: what failed although it says 200, and what a prefill hands over. No sockets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from disaggc.proxy.answers import Answer
from disaggc.proxy.dialects import REQUIRED
from disaggc.proxy.events import events_of, is_failure, is_suspect
from disaggc.proxy.failures import LegError
from disaggc.proxy.framing import BadAnswerError
from disaggc.routing.table import Dialect

_NO_CHOICES = re.compile(rb'"choices"\s*+:\s*+(?:\[\s*\]|null)')
_NIXL = Dialect.NIXL
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
