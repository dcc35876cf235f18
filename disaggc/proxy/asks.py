"""A generation request as the proxy understands it: lengths, whether it can have two legs, and the two bodies.

The prompt is never decoded: members are found as byte ranges (msgspec's Raw) and copied, so a megabyte of text costs
little, and a name that stands twice reaches an engine once. Pure: no sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from disaggc.proxy.failures import RefusedError
from disaggc.proxy.members import (
    IDENTITY,
    KV_PARAMS,
    LARGE,
    XARGS,
    Body,
    encode,
    flag_of,
    members_of,
    pieces_of,
    value_of,
    whole_of,
    without_identity,
)

_PROMPTS: Final = msgspec.json.Decoder(list[Raw])
_ONE: Final = Raw(b"1")
_TRUE: Final = Raw(b"true")
_FALSE: Final = Raw(b"false")
_WITH_USAGE: Final = Raw(b'{"include_usage":true}')

_PREFILL_DROPS: Final = IDENTITY | {
    "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "min_tokens", "min_completion_tokens", "n", "best_of", "use_beam_search",
    "logprobs", "top_logprobs", "prompt_logprobs", "echo", "return_token_ids", XARGS,
}  # fmt: skip
_STOPS: Final = frozenset({"stop", "stop_token_ids", "ignore_eos", "stop_sequences"})
_MOST: Final = 1 << 53
"""Tokens that an answer may be limited to: more than any context has, and floats hold all below it."""
_LIST: Final = re.compile(rb"\[")
_TOKEN_IDS: Final = re.compile(rb"\[\s*(?:\[\s*)?\d")
_LIST_OF_LISTS: Final = re.compile(rb"\[\s*\[")


@dataclass(frozen=True, eq=False)
class Api:
    """One of the generation calls; there is one object for each."""

    path: bytes
    prompts: tuple[str, ...]
    """Members that make up the prompt."""
    messages: tuple[str, ...]
    """Those of them that may hold more than text."""
    limits: tuple[str, ...]
    """Members that cap the answer; the first that is there counts, the last is the one every engine knows."""
    tokenized: frozenset[str] = frozenset()
    """Members that the engine's `/tokenize` takes; empty where it does not know this API."""
    usage_on_request: bool = False
    """Whether a stream says its usage only when asked to."""
    batch: bool = False
    """Whether one request is many conversations."""


CHAT: Final = Api(
    b"/v1/chat/completions", ("messages", "tools"), ("messages",), ("max_completion_tokens", "max_tokens"),
    frozenset({"model", "messages", "tools", "chat_template_kwargs"}), usage_on_request=True,
)  # fmt: skip
BATCH: Final = Api(b"/v1/chat/completions/batch", CHAT.prompts, CHAT.messages, CHAT.limits, batch=True)
COMPLETIONS: Final = Api(
    b"/v1/completions", ("prompt",), (), ("max_tokens",), frozenset({"model", "prompt"}), usage_on_request=True,
)  # fmt: skip
RESPONSES: Final = Api(
    b"/v1/responses", ("input", "instructions", "tools"), ("input",), ("max_output_tokens",)
)
MESSAGES: Final = Api(
    b"/v1/messages", ("messages", "system", "tools"), ("messages", "system"), ("max_tokens",)
)
APIS: Final = {api.path: api for api in (CHAT, BATCH, COMPLETIONS, RESPONSES, MESSAGES)}
_PLURAL: Final = frozenset({"n", "best_of", "use_beam_search", "echo", "prompt_logprobs", "prompt_embeds"})
"""Members that may make more than one answer of one prompt, or make decode recompute the prompt."""
_TEXTS: Final = (
    "text|input_text|output_text|refusal|thinking|redacted_thinking|reasoning|reasoning_text|summary_text|message|"
    "function|function_call|function_call_output|tool_use|tool_result|ephemeral"
)
_OPAQUE: Final = re.compile(
    rb'"(?=[itavpf\\])(?:type"\s*:\s*"(?!(?:%b)")|(?:image_url|image_embeds|image_pil|input_image|image|audio_url|audio_embeds|'
    rb'input_audio|video_url|video_embeds|prompt_embeds|file|file_data|input_file)"\s*:|'
    rb"[a-z_]{0,16}\\u00(?:5[fF]|6[1-9a-fA-F]|7[0-9aA]))" % _TEXTS.encode()
)
"""What is not known to be text: by its type, by its name where it says none (vLLM takes both), or by a letter that
is an escape, which nobody writes but to hide a name.

The letters ahead keep the search as fast as that for one word: on 100 kB of text 64 us instead of 114.
"""


class Ask:
    """One generation request."""

    __slots__ = (
        "api", "countable", "found", "hide_usage", "model", "output_limit", "prompt_bytes", "prompt_tokens", "single",
        "size", "stateful", "stream", "stripped",
    )  # fmt: skip

    def __init__(self, api: Api, body: bytes) -> None:
        """RefusedError 400 when it is none, or says what the proxy goes by in a wrong type."""
        found = members_of(body)
        self.api = api
        self.size = len(body)
        """Bytes that it keeps until an engine has answered."""
        self.found = found
        """Top-level members by name; of a name that stands twice the last, as engines read it."""
        self.model = _model(found)
        size, countable = 0, True
        for name in api.prompts:
            member = found.get(name)
            if member is not None:
                size += len(member)
                if name in api.messages and _OPAQUE.search(member) is not None:
                    countable = False
        stream = flag_of(found, "stream") is True
        if stream:
            found["stream"] = _TRUE
        self.stream = stream
        stateful = api is RESPONSES and _is_stateful(found)
        tokens, one = None, not (api.batch or stateful)
        if api is COMPLETIONS and "prompt" in found:
            tokens, one = _token_ids(found["prompt"])
        if "truncate_prompt_tokens" in found and value_of(found["truncate_prompt_tokens"]) is not None:
            tokens, countable = None, False
        self.prompt_bytes = size
        self.prompt_tokens: int | None = tokens
        """Exact when the prompt is token ids."""
        self.countable = countable
        """Whether bytes say anything about tokens: text only, and all of it."""
        self.output_limit = _output_limit(api, found)
        self.single = one and (_PLURAL.isdisjoint(found) or _is_single(found))
        """One prompt, one answer, nothing that only one engine has or that makes decode recompute the prompt."""
        self.stateful = stateful
        """Needs state that one engine keeps between requests."""
        self.hide_usage = stream and api.usage_on_request and value_of(found.get("stream_options")) is None
        """The proxy asks for usage in the stream and takes it out again."""
        self.stripped = not IDENTITY.isdisjoint(found)
        """The client had put in what only the proxy may say."""

    def prompt_head(self, size: int) -> bytes:
        """The first bytes of the prompt, for prefix affinity."""
        for key in self.api.prompts:
            if key in self.found:
                return bytes(memoryview(self.found[key])[:size])
        return b""

    @property
    def hands_over_tokens(self) -> bool:
        """Whether prefill's token ids may take the place of decode's own templating: chat of plain text only."""
        return self.api is CHAT and self.countable

    @property
    def tokenizable(self) -> bool:
        """Whether an engine's `/tokenize` knows this API."""
        return bool(self.api.tokenized)

    def tokenize_body(self) -> bytes:
        """For `/tokenize`."""
        keep = self.api.tokenized
        return encode({key: value for key, value in self.found.items() if key in keep})

    def prefill_body(self, params: Raw, *, keeps_only_capped: bool) -> Body:
        """Leg 1: the same prompt, one token, no stream."""
        drop = _PREFILL_DROPS | _STOPS if keeps_only_capped else _PREFILL_DROPS
        said = {key: value for key, value in self.found.items() if key not in drop}
        said["stream"] = _FALSE
        limits = self.api.limits
        said[limits[-1]] = _ONE
        if limits[0] in self.found:
            said[limits[0]] = _ONE
        if keeps_only_capped:
            said["ignore_eos"] = _TRUE
        if self.api is RESPONSES:
            said["store"] = _FALSE  # nobody can ask prefill for it
        if self.hands_over_tokens:
            said["return_token_ids"] = _TRUE
        said[KV_PARAMS] = params
        return self._body(said)

    def decode_body(self, params: Raw | None) -> Body:
        """Leg 2, or the only one: the client's own members, with `params` in place of its own."""
        said = without_identity(self.found)
        if said is self.found and (params is not None or self.hide_usage):
            said = said.copy()
        if params is not None:
            said[KV_PARAMS] = params
        if self.hide_usage:
            said["stream_options"] = _WITH_USAGE
        return self._body(said)

    def _body(self, said: dict[str, Raw]) -> Body:
        return pieces_of(said) if self.prompt_bytes > LARGE else encode(said)


def _model(found: Mapping[str, Raw]) -> str | None:
    model = value_of(found.get("model"))
    if model is not None and not isinstance(model, str):
        raise RefusedError(400, "model: Input should be a valid string")
    return model


def _is_stateful(found: Mapping[str, Raw]) -> bool:
    return flag_of(found, "background") is True or value_of(found.get("previous_response_id")) is not None


def _output_limit(api: Api, found: Mapping[str, Raw]) -> int | None:
    for name in api.limits:
        limit = whole_of(found, name)
        if limit is not None:
            return min(max(0, limit), _MOST)
    return None


def _token_ids(prompt: Raw) -> tuple[int | None, bool]:
    """Exact tokens of a prompt of ids, and whether it is one prompt only."""
    text = bytes(prompt) if _LIST.match(prompt) else b""
    if not text:
        return None, True
    if not _TOKEN_IDS.match(text):
        return None, len(_PROMPTS.decode(text)) == 1
    nested = _LIST_OF_LISTS.match(text) is not None
    return text.count(b",") + 1, not nested or text.count(b"[") == 2


def _is_single(found: Mapping[str, Raw]) -> bool:
    try:
        if any(whole_of(found, name) not in (1, None) for name in ("n", "best_of")):
            return False
        if flag_of(found, "use_beam_search") or flag_of(found, "echo"):
            return False
    except RefusedError:
        return False  # decode says so, without a prefill for nothing
    return value_of(found.get("prompt_logprobs")) is None and value_of(found.get("prompt_embeds")) is None
