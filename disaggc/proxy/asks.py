"""A generation request as the proxy understands it: lengths, whether it can have two legs, and the two bodies.

The prompt is never decoded: members are found as byte ranges (msgspec's Raw) and copied, so a megabyte of text costs
little, and a name that stands twice reaches an engine once. Pure: no sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from disaggc.proxy.failures import RefusedError

KV_PARAMS = "kv_transfer_params"
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ANYTHING: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_PROMPTS = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode
_ONE, _TRUE, _FALSE, _NULL = Raw(b"1"), Raw(b"true"), Raw(b"false"), Raw(b"null")
_WITH_USAGE = Raw(b'{"include_usage":true}')

_IDENTITY = frozenset({KV_PARAMS, "ec_transfer_params", "request_id"})
"""What names blocks on an engine or pairs legs: only the proxy may say it."""
_PREFILL_DROPS = _IDENTITY | {
    "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "min_tokens", "min_completion_tokens", "n", "best_of", "use_beam_search",
    "logprobs", "top_logprobs", "prompt_logprobs", "echo", "return_token_ids", "vllm_xargs",
}  # fmt: skip
_STOPS = frozenset({"stop", "stop_token_ids", "ignore_eos", "stop_sequences"})
_XARGS_OVERRIDES = re.compile(r"(kv|ec)_transfer_params|request_id|transfer_id|do_remote_\w+|remote_\w+")
_LIST = re.compile(rb"\[")
_TOKEN_IDS = re.compile(rb"\[\s*(?:\[\s*)?\d")
_LIST_OF_LISTS = re.compile(rb"\[\s*\[")
_SHORT = 512


@dataclass(frozen=True, eq=False, slots=True)
class Api:
    """One of the generation calls; there is one object for each."""

    path: bytes
    prompts: tuple[str, ...]
    """Members that make up the prompt."""
    limit: str
    """Member that caps the answer."""
    tokenized: frozenset[str] = frozenset()
    """Members that the engine's `/tokenize` takes; empty where it does not know this API."""
    usage_on_request: bool = False
    """Whether a stream says its usage only when asked to."""


CHAT = Api(
    b"/v1/chat/completions", ("messages", "tools"), "max_tokens",
    frozenset({"model", "messages", "tools", "chat_template_kwargs"}), usage_on_request=True,
)  # fmt: skip
COMPLETIONS = Api(
    b"/v1/completions", ("prompt",), "max_tokens", frozenset({"model", "prompt"}), usage_on_request=True
)
RESPONSES = Api(b"/v1/responses", ("input", "instructions", "tools"), "max_output_tokens")
MESSAGES = Api(b"/v1/messages", ("messages", "system", "tools"), "max_tokens")
APIS = {api.path: api for api in (CHAT, COMPLETIONS, RESPONSES, MESSAGES)}
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_PLURAL = frozenset({"n", "best_of", "use_beam_search", "echo", "prompt_logprobs", "prompt_embeds"})
"""Members that may make more than one answer of one prompt, or make decode recompute the prompt."""
_STATE = frozenset({"background", "previous_response_id"})
_OPAQUE = re.compile(rb'"(?:image_url|input_audio|video_url|input_image|image)"')


@dataclass(slots=True)
class Ask:
    """One generation request."""

    api: Api
    found: dict[str, Raw]
    """Top-level members by name; of a name that stands twice the last, as engines read it."""
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
        return _encode({key: value for key, value in self.found.items() if key in keep})

    def prefill_body(self, params: Raw, *, keeps_only_capped: bool) -> bytes:
        """Leg 1: the same prompt, one token, no stream."""
        drop = _PREFILL_DROPS | _STOPS if keeps_only_capped else _PREFILL_DROPS
        said = {key: value for key, value in self.found.items() if key not in drop}
        said["stream"] = _FALSE
        said[self.api.limit] = _ONE
        if "max_completion_tokens" in self.found and self.api is not RESPONSES:
            said["max_completion_tokens"] = _ONE
        if keeps_only_capped:
            said["ignore_eos"] = _TRUE
        if self.hands_over_tokens:
            said["return_token_ids"] = _TRUE
        said[KV_PARAMS] = params
        return _encode(said)

    def decode_body(self, params: Raw | None) -> bytes:
        """Leg 2, or the only one: the client's own members, with `params` in place of its own."""
        said = self.found
        if self.stripped:
            said = {key: value for key, value in said.items() if key not in _IDENTITY}
        elif params is not None or self.hide_usage or "vllm_xargs" in said:
            said = said.copy()
        if params is not None:
            said[KV_PARAMS] = params
        if self.hide_usage:
            said["stream_options"] = _WITH_USAGE
        if "vllm_xargs" in said:
            said["vllm_xargs"] = _safe_xargs(said["vllm_xargs"])
        return _encode(said)


def parse_ask(api: Api, body: bytes) -> Ask:
    """The request in a body; RefusedError 400 when it is not a JSON object."""
    try:
        found = _OBJECT.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise RefusedError(400, f"the request body cannot be read: {exc}") from None
    prompts = [found[name] for name in api.prompts if name in found]
    stream = "stream" in found and _value(found["stream"]) is True
    tokens, one, countable = None, True, True
    if api is not COMPLETIONS:
        countable = not any(_OPAQUE.search(prompt) for prompt in prompts)
    elif prompts:
        tokens, one = _token_ids(prompts[0])
    model = _value(found["model"]) if "model" in found else None
    return Ask(
        api,
        found,
        stream=stream,
        model=model if isinstance(model, str) else None,
        prompt_bytes=sum(map(len, prompts)),
        prompt_tokens=tokens,
        countable=countable,
        output_limit=_output_limit(found),
        single=one and (_PLURAL.isdisjoint(found) or _is_single(found)),
        stateful=not _STATE.isdisjoint(found)
        and any(_value(found[name]) for name in _STATE if name in found),
        hide_usage=stream and api.usage_on_request and not _value(found.get("stream_options", _NULL)),
        stripped=not _IDENTITY.isdisjoint(found),
    )


def _output_limit(found: Mapping[str, Raw]) -> int | None:
    for name in _LIMITS:
        if name in found:
            value = _value(found[name])
            if type(value) is int and value >= 0:
                return value
    return None


def _value(member: Raw) -> object:
    """The member's value; of what is too long to be an option only that it is there (True)."""
    if len(member) > _SHORT:
        return True
    try:
        return _ANYTHING.decode(member)
    except (msgspec.DecodeError, RecursionError):
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
    said = {name: _value(found[name]) for name in _PLURAL if name in found}
    if said.get("n", 1) not in (1, None) or said.get("best_of", 1) not in (1, None):
        return False
    return not (
        "prompt_embeds" in said
        or said.get("use_beam_search") is True
        or said.get("echo") is True
        or said.get("prompt_logprobs") is not None
    )


def _safe_xargs(value: Raw) -> Raw:
    try:
        given = _ANYTHING.decode(value)
    except (msgspec.DecodeError, RecursionError):
        raise RefusedError(400, "`vllm_xargs` is not JSON") from None
    if not isinstance(given, dict):
        return value
    return Raw(_encode({k: v for k, v in given.items() if not _XARGS_OVERRIDES.fullmatch(k)}))
