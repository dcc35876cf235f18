"""A generation request as the proxy understands it: lengths, whether it can have two legs, and the two bodies.

The prompt is never decoded: members are found as byte ranges and copied. Pure: no sockets.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from disaggc.proxy.failures import RefusedError
from disaggc.proxy.members import Member, NotAnObjectError, Pieces, members, splice

_IDENTITY = frozenset({"kv_transfer_params", "ec_transfer_params", "request_id"})
"""What names blocks on an engine or pairs legs: only the proxy may say it."""
_PREFILL_DROPS = _IDENTITY | {
    "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "min_tokens", "min_completion_tokens", "n", "best_of", "use_beam_search",
    "logprobs", "top_logprobs", "prompt_logprobs", "echo", "return_token_ids", "vllm_xargs",
}  # fmt: skip
_STOPS = frozenset({"stop", "stop_token_ids", "ignore_eos", "stop_sequences"})
_XARGS_OVERRIDES = re.compile(r"(kv|ec)_transfer_params|request_id|transfer_id|do_remote_\w+|remote_\w+")
_TOKEN_IDS = re.compile(rb"\[\s*(?:\[\s*)?\d")
_LIST_OF_LISTS = re.compile(rb"\[\s*\[")
_SHORT = 512


class Api(StrEnum):
    """The generation calls; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


_PROMPT_KEYS = {
    Api.CHAT: ("messages", "tools"),
    Api.COMPLETIONS: ("prompt",),
    Api.RESPONSES: ("input", "instructions", "tools"),
    Api.MESSAGES: ("messages", "system", "tools"),
}
_LIMIT_KEYS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_READ = frozenset(
    {
        "model", "stream", "stream_options", *_LIMIT_KEYS, "n", "best_of", "use_beam_search", "echo",
        "prompt_logprobs", "prompt_embeds", "background", "previous_response_id",
    }
)  # fmt: skip
"""Members whose values the proxy reads."""
_OPAQUE = (b'"image_url"', b'"input_audio"', b'"video_url"', b'"input_image"', b'"image"')


@dataclass(slots=True)
class Ask:
    """One generation request."""

    api: Api
    body: bytes
    found: list[Member]
    stream: bool
    model: str | None
    prompt_bytes: int
    prompt_tokens: int | None
    """Exact when the prompt is token ids."""
    countable: bool
    """Whether bytes say anything about tokens (no images)."""
    output_limit: int | None
    single: bool
    """One prompt, one answer, nothing that makes decode recompute the prompt."""
    stateful: bool
    """Needs state that one engine keeps between requests."""
    hide_usage: bool
    """The proxy asks for usage in the stream and takes it out again."""
    stripped: bool
    """The client had put in what only the proxy may say."""

    def prompt_head(self, size: int) -> bytes:
        """The first bytes of the prompt, for prefix affinity."""
        for key in _PROMPT_KEYS[self.api]:
            for member in self.found:
                if member.key == key:
                    return self.body[member.value : min(member.end, member.value + size)]
        return b""

    def prefill_body(self, params: bytes, *, keeps_only_capped: bool) -> Pieces:
        """Leg 1: the same prompt, one token, no stream; `params` is a JSON member."""
        limit = b'"max_tokens":1'
        if self.api is Api.RESPONSES:
            limit = b'"max_output_tokens":1'
        elif any(m.key == "max_completion_tokens" for m in self.found):
            limit = b'"max_tokens":1,"max_completion_tokens":1'
        drop, add = _PREFILL_DROPS, b'"stream":false,' + limit + b"," + params
        if keeps_only_capped:
            drop, add = drop | _STOPS, add + b',"ignore_eos":true'
        return splice(self.body, self.found, drop=drop, add=add)

    def decode_body(self, params: bytes) -> Pieces:
        """Leg 2, or the only one: the client's own body, with `params` (may be empty) in place of its own."""
        add = [params] if params else []
        drop = _IDENTITY
        if self.hide_usage:
            add.append(b'"stream_options":{"include_usage":true}')
            drop = drop | {"stream_options"}
        xargs = next((m for m in self.found if m.key == "vllm_xargs"), None)
        if xargs is not None:
            drop = drop | {"vllm_xargs"}
            add.append(b'"vllm_xargs":' + _safe_xargs(self.body[xargs.value : xargs.end]))
        if not add and not self.stripped:
            return [self.body]
        return splice(self.body, self.found, drop=drop, add=b",".join(add))


def parse_ask(api: Api, body: bytes) -> Ask:
    """The request in a body; RefusedError 400 when its top level is not a JSON object."""
    try:
        found = members(body)
    except NotAnObjectError as exc:
        raise RefusedError(400, f"the request body cannot be read: {exc}") from None
    short: dict[str, object] = {}
    prompts: list[Member] = []
    keys = _PROMPT_KEYS[api]
    stripped = False
    for member in found:
        key = member.key
        if key in keys:
            prompts.append(member)
        elif key in _IDENTITY:
            stripped = True
        elif key in _READ:
            short[key] = _short(body, member)
    model = short.get("model")
    stream = short.get("stream") is True
    tokens, one = _token_ids(body, prompts[0]) if api is Api.COMPLETIONS and prompts else (None, True)
    return Ask(
        api=api,
        body=body,
        found=found,
        stream=stream,
        model=model if isinstance(model, str) else None,
        prompt_bytes=sum(m.end - m.value for m in prompts),
        prompt_tokens=tokens,
        countable=api is Api.COMPLETIONS
        or not any(body.find(mark, m.value, m.end) >= 0 for m in prompts for mark in _OPAQUE),
        output_limit=_output_limit(short),
        single=one and _is_single(short),
        stateful=short.get("background") is True or bool(short.get("previous_response_id")),
        hide_usage=stream and api in (Api.CHAT, Api.COMPLETIONS) and not short.get("stream_options"),
        stripped=stripped,
    )


def _output_limit(short: dict[str, object]) -> int | None:
    for key in _LIMIT_KEYS:
        value = short.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


_WORDS: dict[bytes, object] = {b"true": True, b"false": False, b"null": None}


def _short(body: bytes, member: Member) -> object:
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


def _token_ids(body: bytes, member: Member) -> tuple[int | None, bool]:
    """Exact tokens of a prompt of ids, and whether it is one prompt only."""
    if body[member.value] != ord("["):
        return None, True
    if not _TOKEN_IDS.match(body, member.value):
        try:
            return None, len(json.loads(body[member.value : member.end])) == 1
        except (ValueError, RecursionError):
            raise RefusedError(400, "`prompt` is not JSON") from None
    nested = _LIST_OF_LISTS.match(body, member.value) is not None
    tokens = body.count(b",", member.value, member.end) + 1
    return tokens, not nested or body.count(b"[", member.value, member.end) == 2


def _is_single(short: dict[str, object]) -> bool:
    if short.get("n", 1) not in (1, None) or short.get("best_of", 1) not in (1, None):
        return False
    return not (
        "prompt_embeds" in short
        or short.get("use_beam_search") is True
        or short.get("echo") is True
        or short.get("prompt_logprobs") is not None
    )


def _safe_xargs(text: bytes) -> bytes:
    try:
        given = json.loads(text)
    except ValueError:
        raise RefusedError(400, "`vllm_xargs` is not JSON") from None
    if not isinstance(given, dict):
        return text
    return json.dumps({k: v for k, v in given.items() if not _XARGS_OVERRIDES.fullmatch(k)}).encode()
