"""The short members of a generation request that the proxy reads: what they are and what they say. No sockets."""

from __future__ import annotations

import json

from disaggc.proxy.members import Member

_SHORT = 512
_LIMIT_KEYS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
READ = frozenset(
    {
        "model", "stream", "stream_options", *_LIMIT_KEYS, "n", "best_of", "use_beam_search", "echo",
        "prompt_logprobs", "prompt_embeds", "background", "previous_response_id",
    }
)  # fmt: skip
"""Members whose values the proxy reads."""


def output_limit(short: dict[str, object]) -> int | None:
    """Output tokens the client wants at most, None where it does not say."""
    for key in _LIMIT_KEYS:
        value = short.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


_WORDS: dict[bytes, object] = {b"true": True, b"false": False, b"null": None}


def short_value(body: bytes, member: Member) -> object:
    """The member's value; of what is too long to be an option only that it is there (True)."""
    if member.end - member.value > _SHORT:
        return True
    text = body[member.value : member.end]
    if text in _WORDS:
        return _WORDS[text]
    if text.isdigit():
        return int(text)
    if text.startswith(b'"') and b"\\" not in text:
        return text[1:-1].decode("utf-8", "replace")
    try:
        return json.loads(text)
    except ValueError:
        return None


def is_single(short: dict[str, object]) -> bool:
    """One answer, and nothing that makes decode recompute the prompt."""
    if short.get("n", 1) not in (1, None) or short.get("best_of", 1) not in (1, None):
        return False
    return not (
        "prompt_embeds" in short
        or short.get("use_beam_search") is True
        or short.get("echo") is True
        or short.get("prompt_logprobs") is not None
    )
