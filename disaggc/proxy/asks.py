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
from disaggc.proxy.options import READ, is_single, output_limit, short_value

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
Around = tuple[bytes, bytes]


class Api(StrEnum):
    """The generation calls; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"


PROMPT_KEYS = {
    Api.CHAT: ("messages", "tools"),
    Api.COMPLETIONS: ("prompt",),
    Api.RESPONSES: ("input", "instructions", "tools"),
    Api.MESSAGES: ("messages", "system", "tools"),
}
OPAQUE = (b'"image_url"', b'"input_audio"', b'"video_url"', b'"input_image"', b'"image"')


@dataclass(slots=True)
class Ask:
    """One generation request."""

    api: Api
    body: bytes
    members: list[Member] | None
    """Of a body whose shape was known: only on demand."""
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
    around_prefill: Around | None = None
    """The prefill leg's body before and after the prompt, less the parameters and the closing brace."""
    around_decode: Around | None = None
    prompt: tuple[int, int] = (0, 0)
    """Where the prompt is, when what stands around it is known."""

    @property
    def found(self) -> list[Member]:
        """The members of the body."""
        if self.members is None:
            self.members = members(self.body)
        return self.members

    def around(self, prompt: Member, *, prefill: bool) -> Around:
        """What a leg's body has before and after the only prompt."""
        drop = _PREFILL_DROPS if prefill else _IDENTITY | {"stream_options"} if self.hide_usage else _IDENTITY
        kept = [m for m in self.found if m.key not in drop]
        before = b"{" + b"".join(self.body[m.start : m.end] + b"," for m in kept if m.end < prompt.start)
        after = b"".join(b"," + self.body[m.start : m.end] for m in kept if m.start > prompt.end)
        after += b"," + self._leg1_options() + b"," if prefill else b""
        return before + self.body[prompt.start : prompt.value], after

    def _leg1_options(self) -> bytes:
        limit = b'"max_tokens":1'
        if self.api is Api.RESPONSES:
            limit = b'"max_output_tokens":1'
        elif any(m.key == "max_completion_tokens" for m in self.found):
            limit = b'"max_tokens":1,"max_completion_tokens":1'
        return b'"stream":false,' + limit

    def prompt_head(self, size: int) -> bytes:
        """The first bytes of the prompt, for prefix affinity."""
        for key in PROMPT_KEYS[self.api]:
            for member in self.found:
                if member.key == key:
                    return self.body[member.value : min(member.end, member.value + size)]
        return b""

    def _prompt_view(self) -> memoryview:
        start, end = self.prompt
        return memoryview(self.body)[start:end]

    def prefill_body(self, params: bytes, *, keeps_only_capped: bool) -> Pieces:
        """Leg 1: the same prompt, one token, no stream; `params` is a JSON member."""
        if self.around_prefill is not None and not keeps_only_capped:
            before, after = self.around_prefill
            return [before, self._prompt_view(), after + params + b"}"]
        drop, add = _PREFILL_DROPS, self._leg1_options() + b"," + params
        if keeps_only_capped:
            drop, add = drop | _STOPS, add + b',"ignore_eos":true'
        return splice(self.body, self.found, drop=drop, add=add)

    def decode_body(self, params: bytes) -> Pieces:
        """Leg 2, or the only one: the client's own body, with `params` (may be empty) in place of its own."""
        if self.around_decode is not None:
            before, after = self.around_decode
            if params:
                after += b"," + params
            elif not self.hide_usage and not self.stripped:
                return [self.body]
            usage = b',"stream_options":{"include_usage":true}}' if self.hide_usage else b"}"
            return [before, self._prompt_view(), after + usage]
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
    keys = PROMPT_KEYS[api]
    stripped = False
    for member in found:
        key = member.key
        if key in keys:
            prompts.append(member)
        elif key in _IDENTITY:
            stripped = True
        elif key in READ:
            short[key] = short_value(body, member)
    model = short.get("model")
    stream = short.get("stream") is True
    tokens, one = _token_ids(body, prompts[0]) if api is Api.COMPLETIONS and prompts else (None, True)
    return Ask(
        api=api,
        body=body,
        members=found,
        stream=stream,
        model=model if isinstance(model, str) else None,
        prompt_bytes=sum(m.end - m.value for m in prompts),
        prompt_tokens=tokens,
        countable=api is Api.COMPLETIONS
        or not any(body.find(mark, m.value, m.end) >= 0 for m in prompts for mark in OPAQUE),
        output_limit=output_limit(short),
        single=one and is_single(short),
        stateful=short.get("background") is True or bool(short.get("previous_response_id")),
        hide_usage=stream and api in (Api.CHAT, Api.COMPLETIONS) and not short.get("stream_options"),
        stripped=stripped,
    )


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


def _safe_xargs(text: bytes) -> bytes:
    try:
        given = json.loads(text)
    except ValueError:
        raise RefusedError(400, "`vllm_xargs` is not JSON") from None
    if not isinstance(given, dict):
        return text
    return json.dumps({k: v for k, v in given.items() if not _XARGS_OVERRIDES.fullmatch(k)}).encode()
