r"""What stands in an engine's answer that the proxy must see: failures, usage, KV parameters.

Cheap byte searches decide whether to look; only then are events taken apart and JSON decoded. A quoted word inside a
generated text is always escaped (`\"error\"`), so the searches see structure, not content. Knows no sockets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from disaggc.proxy.engine_json import Counts, OnlyUsage, Usage
from disaggc.proxy.eventstream import split_events, value_of
from disaggc.proxy.framing import BadAnswerError, chunk_length, dechunk

_FIRST_VALUE: Final = json.JSONDecoder(strict=False)
KV_KEY: Final = b'"kv_transfer_params"'
_KV_VALUE: Final = re.compile(rb'"kv_transfer_params"\s*+:\s*+(?!null)')
_COUNTS: Final = re.compile(
    rb'"(prompt|input|completion|output|cached|cache_read_input)_tokens"\s*:\s*(\d{1,12})(?!\d)'
)
"""Numbers below `engine_json.TOKENS_END`."""
_CACHED: Final = re.compile(rb'"cache(?:d|_read_input)_tokens"\s*:\s*(\d{1,12})(?!\d)')
_FAILED: Final = frozenset({"error", "abort", "failed", "cancelled", "response.failed", "response.cancelled"})
_LAST_TYPES: Final = frozenset({"message_stop", "response.completed", "response.incomplete"})
_DONE: Final = b"[DONE]"
_DONE_CHUNK: Final = b"\ndata: [DONE]\n\n\r\n"
_ANYTHING: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()


class UnscrubbableError(ValueError):
    """KV parameters whose end is not in sight: the answer must be cut."""


def scrub(data: bytes) -> tuple[bytes, int]:
    """The bytes, same length, with every non-null `kv_transfer_params` blanked, and how many there were."""
    count = 0
    match = _KV_VALUE.search(data)
    while match is not None:
        try:
            _, length = _FIRST_VALUE.raw_decode(data[match.end() :].decode("latin-1"))
        except (ValueError, RecursionError) as exc:
            raise UnscrubbableError("kv_transfer_params without an end") from exc
        end = match.end() + length
        if length >= 4:
            data = data[: match.end()] + b"null" + b" " * (length - 4) + data[end:]
            count += 1
        match = _KV_VALUE.search(data, match.end() + 4)
    return data, count


def object_of(event: bytes) -> dict[str, Any] | None:
    """The JSON object in one event; None where there is none."""
    value = value_of(event)
    if not value.startswith(b"{"):
        return None
    try:
        said = _ANYTHING.decode(value)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def events_of(framed: bytes) -> list[dict[str, Any]]:
    """The JSON objects of the events in whole chunks."""
    return [said for event in split_events(dechunk(framed)) if (said := object_of(event)) is not None]


_ONLY_USAGE: Final = msgspec.json.Decoder(OnlyUsage)


def is_failure(answer: dict[str, Any]) -> bool:
    """An error object, a failed response or message, or a choice that finished by error or abort."""
    if answer.get("error"):
        return True
    if any(is_failed(answer.get(name)) for name in ("type", "status", "stop_reason")):
        return True
    for name, key in (("response", "status"), ("delta", "stop_reason")):
        inner = answer.get(name)
        if isinstance(inner, dict) and is_failed(inner.get(key)):
            return True
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(c, dict) and is_failed(c.get("finish_reason")) for c in choices)


def is_failed(word: object) -> bool:
    """Whether a type, a status or a reason says a failure."""
    return isinstance(word, str) and word in _FAILED


def is_last(event: dict[str, Any]) -> bool:
    """Whether the generation, or one choice of it, is complete with this event."""
    kind = event.get("type")
    if isinstance(kind, str) and kind in _LAST_TYPES:
        return True
    choices = event.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(c, dict) and c.get("finish_reason") for c in choices)


def is_complete(framed: bytes) -> bool:
    """Whether these chunks say that the stream has an end: by its mark, or by an event that is the last of a choice."""
    if framed.endswith(_DONE_CHUNK):
        return True
    for event in split_events(dechunk(framed)):
        said = object_of(event)
        if value_of(event) == _DONE if said is None else is_last(said):
            return True
    return False


def is_only_usage(event: dict[str, Any]) -> bool:
    """What the proxy asked for and the client did not."""
    return event.get("choices") == [] and bool(event.get("usage"))


def usage_apart(framed: bytes) -> tuple[bytes, Usage] | None:
    """Whole chunks less the event that only carries usage, and what it says; None unless it is a chunk of its own.

    vLLM writes it so. Finding it by its borders costs a fifth of taking all events apart.
    """
    at = framed.rfind(b'"usage":{')
    start = framed.rfind(b"data: {", 0, at) if at >= 0 else -1
    if start < 3 or framed[start - 2 : start] != b"\r\n":
        return None
    before = framed.rfind(b"\r\n", 0, start - 2)
    line = before + 2 if before >= 0 else 0
    try:
        end = start + chunk_length(framed[line : start - 2])
        if end < start + 6:  # compiled, a slice that ends before it begins is an error
            return None
        said = _ONLY_USAGE.decode(framed[start + 6 : end])
    except (BadAnswerError, msgspec.DecodeError):
        return None
    if said.choices or framed[end - 2 : end] != b"\n\n":
        return None
    counts = said.usage
    completion = counts.completion_tokens or counts.output_tokens or 0
    return framed[:line] + framed[end + 2 :], Usage(prompt_of(counts), completion, cached_of(counts) or 0)


notable_in: Final = re.compile(
    rb'"(error|abort|failed|cancelled|response\.(?:failed|cancelled)|usage|kv_transfer_params)"'
).findall
"""The words in some bytes of a stream that may say a failure, usage or KV parameters.

One search instead of many: on a chunk of a stream 0.9 us instead of 1.9.
"""
PARAMS: Final = b"kv_transfer_params"
USAGE: Final = b"usage"
_HARMLESS: Final = frozenset({PARAMS, USAGE})


def may_have_failed(words: Iterable[bytes]) -> bool:
    """Whether one of the words that `notable_in` found may say a failure; only then is it worth decoding events."""
    return not _HARMLESS.issuperset(words)


def prompt_of(counts: Counts) -> int:
    """Prompt tokens; 0 = not said."""
    return counts.prompt_tokens or counts.input_tokens or 0


def cached_of(counts: Counts) -> int | None:
    """Prompt tokens that were cached; None = not said."""
    details = counts.prompt_tokens_details or counts.input_tokens_details
    return details.cached_tokens if details is not None else counts.cache_read_input_tokens


def usage_of(data: bytes) -> Usage | None:
    """The token counts in an answer or an event, whatever the API calls them; None when it has none.

    Counts stand after `"usage":{`, where a generated text cannot put them.
    """
    at = _usage_at(data)
    if at < 0:
        return None
    counts: dict[bytes, int] = {}
    for name, count in _COUNTS.findall(data, at):
        counts.setdefault(name, int(count))
    prompt = counts.get(b"prompt", counts.get(b"input"))
    if prompt is None:
        return None
    completion = counts.get(b"completion", counts.get(b"output", 0))
    return Usage(prompt, completion, counts.get(b"cached", counts.get(b"cache_read_input", 0)))


def _usage_at(data: bytes) -> int:
    """Where the last usage begins, -1 without one."""
    at = data.rfind(b'"usage"')
    return at if at >= 0 and data[at + 7 : at + 9].lstrip()[:1] == b":" else -1


def cached_tokens_as(body: bytes, cached: int | None) -> bytes:
    """The body with its usage saying that so many prompt tokens were cached (None = null); only where it says any.

    Decode counts what it fetched from prefill as cached, which it is not (vllm#44607).
    """
    at = _usage_at(body)
    match = _CACHED.search(body, at) if at >= 0 else None
    if match is None:
        return body
    number = b"null" if cached is None else b"%d" % cached
    return body[: match.start(1)] + number + body[match.end(1) :]
