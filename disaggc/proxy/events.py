r"""What stands in an engine's answer that the proxy must see: failures, usage, KV parameters.

Cheap byte searches decide whether to look; only then is JSON decoded. A quoted word inside a generated text is always
escaped (`\"error\"`), so the searches see structure, not content. Knows no sockets.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from disaggc.proxy.framing import chunks, dechunk
from disaggc.proxy.members import NotAnObjectError, value_end

KV_KEY = b'"kv_transfer_params"'
SUSPECTS = (b'"error"', b'"abort"', b'"response.failed"')
_KV_VALUE = re.compile(rb'"kv_transfer_params"\s*:\s*(?!null)')
FAILED_FINISHES = frozenset({"error", "abort"})


class UnscrubbableError(ValueError):
    """KV parameters whose end is not in sight: the answer must be cut."""


@dataclass(frozen=True, slots=True)
class Usage:
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


def usage_of(answer: dict[str, Any]) -> Usage | None:
    """The token counts of a whole answer or of a stream's last event, whatever the API calls them."""
    nested = answer.get("response")
    raw = answer.get("usage") or (nested.get("usage") if isinstance(nested, dict) else None)
    if not isinstance(raw, dict):
        return None
    details = raw.get("prompt_tokens_details") or raw.get("input_tokens_details") or {}
    cached = details.get("cached_tokens") if isinstance(details, dict) else raw.get("cache_read_input_tokens")
    return Usage(
        _count(raw.get("prompt_tokens", raw.get("input_tokens"))),
        _count(raw.get("completion_tokens", raw.get("output_tokens"))),
        _count(cached),
    )


def _count(number: object) -> int:
    return number if isinstance(number, int) and 0 <= number < 1 << 40 else 0


def is_empty(answer: dict[str, Any]) -> bool:
    """A 200 that says nothing: null or empty choices."""
    return "choices" in answer and not answer["choices"]


def usage_event(framed: bytes) -> tuple[bytes, Usage | None]:
    """Whole chunks less the event that only carries `usage`, and that usage.

    For answers where the proxy asked for usage and the client did not; an event of its own is a chunk of its own.
    """
    kept, found = [], None
    at = 0
    for start, end, body in chunks(framed):
        if b'"usage":{' in body and body.startswith(b"data: {") and body.count(b"\n\n") == 1:
            found = usage_of(json.loads(body[6:]))
            if b'"choices":[]' in body:
                kept.append(framed[at:start])
                at = end
    kept.append(framed[at:])
    return b"".join(kept), found
