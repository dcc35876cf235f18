r"""What stands in an engine's answer that the proxy must see: failures, usage, KV parameters.

Cheap byte searches decide whether to look; only then is JSON decoded. A quoted word inside a generated text is always
escaped (`\"error\"`), so the searches see structure, not content. Knows no sockets.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from disaggc.proxy.framing import chunks, dechunk
from disaggc.proxy.members import NotAnObjectError, value_end

KV_KEY = b'"kv_transfer_params"'
_KV_VALUE = re.compile(rb'"kv_transfer_params"\s*+:\s*+(?!null)')
_PROMPT = re.compile(rb'"(?:prompt|input)_tokens":\s*(\d{1,12})')
_COMPLETION = re.compile(rb'"(?:completion|output)_tokens":\s*(\d{1,12})')
_CACHED = re.compile(rb'"cache(?:d|_read_input)_tokens":\s*(\d{1,12})')
FAILED_FINISHES = frozenset({"error", "abort"})


class UnscrubbableError(ValueError):
    """KV parameters whose end is not in sight: the answer must be cut."""


class Usage(NamedTuple):
    """Token counts of one answer."""

    prompt: int
    completion: int
    cached: int


def scrub(data: bytes) -> tuple[bytes, int]:
    """The bytes, same length, with every non-null `kv_transfer_params` blanked, and how many there were."""
    count = 0
    match = _KV_VALUE.search(data)
    while match is not None:
        try:
            end = value_end(data, match.end())
        except NotAnObjectError as exc:
            raise UnscrubbableError("kv_transfer_params without an end") from exc
        if end - match.end() >= 4:
            blank = b"null" + b" " * (end - match.end() - 4)
            data = data[: match.end()] + blank + data[end:]
            count += 1
        match = _KV_VALUE.search(data, match.end() + 4)
    return data, count


def events_of(framed: bytes) -> list[dict[str, Any]]:
    """The JSON objects of the complete SSE events in whole chunks."""
    found = []
    for line in dechunk(framed).split(b"\n"):
        if line.startswith(b"data:") and line[5:6].strip() in (b"", b"{"):
            try:
                event = json.loads(line[5:])
            except ValueError:
                continue
            if isinstance(event, dict):
                found.append(event)
    return found


def is_failure(answer: dict[str, Any]) -> bool:
    """An error object, a failed response, or a choice that finished by error or abort."""
    if answer.get("error") or answer.get("type") in ("error", "response.failed"):
        return True
    if answer.get("status") in ("failed", "cancelled"):
        return True
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return False
    return any(isinstance(c, dict) and c.get("finish_reason") in FAILED_FINISHES for c in choices)


def is_suspect(data: bytes) -> bool:
    """Whether a failure may stand in these bytes; only then is it worth decoding them."""
    return b'"error"' in data or b'"abort"' in data or b'"response.failed"' in data


def usage_of(data: bytes) -> Usage | None:
    """The token counts in an answer or an event, whatever the API calls them; None when it has none.

    Counts stand after `"usage":{`, where a generated text cannot put them.
    """
    at = data.rfind(b'"usage":')
    prompt = _PROMPT.search(data, at) if at >= 0 else None
    if prompt is None:
        return None
    completion, cached = _COMPLETION.search(data, at), _CACHED.search(data, at)
    return Usage(int(prompt[1]), int(completion[1]) if completion else 0, int(cached[1]) if cached else 0)


def without_usage_event(framed: bytes) -> bytes:
    """Whole chunks less the event that only carries `usage`, which the proxy asked for and the client did not.

    Engines send an event of its own as a chunk of its own; anything else stays.
    """
    kept: list[bytes] = []
    at = 0
    for start, end, body in chunks(framed):
        if b'"usage":{' in body and b'"choices":[]' in body and body.count(b"\n\n") == 1:
            kept.append(framed[at:start])
            at = end
    kept.append(framed[at:])
    return b"".join(kept)
