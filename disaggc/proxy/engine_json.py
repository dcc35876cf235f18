"""What stands in engines' answers, as far as it matters here: the shapes that msgspec decodes them into.

Apart from what uses them, as msgspec makes these classes and mypyc must not.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

TOKENS_END: Final = 10**12
"""Counts of tokens are below it and not below nought: whatever else an engine says would spoil what is learned from
all of them, and beyond 1e308 is no number that can be added up."""
Tokens = Annotated[int, Meta(ge=0, lt=TOKENS_END)]


class Details(msgspec.Struct):
    """What some APIs say of the prompt's tokens."""

    cached_tokens: Tokens | None = None


class Counts(msgspec.Struct):
    """An answer's `usage`, by the names of every API."""

    prompt_tokens: Tokens | None = None
    input_tokens: Tokens | None = None
    completion_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    prompt_tokens_details: Details | None = None
    input_tokens_details: Details | None = None
    cache_read_input_tokens: Tokens | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts of one answer, whatever the API calls them."""

    prompt: int
    completion: int
    cached: int


class OnlyUsage(msgspec.Struct):
    """The event that a client asks for with `include_usage`."""

    choices: list[Raw]
    usage: Counts


class Choice(msgspec.Struct):
    """One of the answers to a prompt."""

    finish_reason: Any = None


class Whole(msgspec.Struct):
    """What the calls that generate answer with, by every API."""

    error: Any = None
    type: Any = None
    status: Any = None
    stop_reason: Any = None
    choices: list[Choice] | UnsetType | None = UNSET
    output: Raw = Raw()
    content: Raw = Raw()


class Prefilled(Whole):
    """The same of prefill, with what it hands over."""

    kv_transfer_params: Raw = Raw(b"null")
    prompt_token_ids: Raw = Raw(b"null")
    usage: Counts | None = None


class Kept(msgspec.Struct):
    """What prefill says of the KV it keeps; the lists of blocks are not decoded."""

    remote_block_ids: Raw = Raw(b"null")
    remote_engine_id: Any = None
    remote_host: Any = None
    remote_port: Any = None
    do_remote_prefill: Any = None
    remote_prefill_cached_tokens: Any = None


class Counted(msgspec.Struct):
    """What `/tokenize` answers."""

    count: Tokens
