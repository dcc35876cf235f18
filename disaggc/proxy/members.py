"""The members of a JSON body: found without decoding them, read as vLLM reads them, rid of what only the proxy may say.

vLLM declares its requests with pydantic's lax types: `"true"`, `1` and `"on"` are true, `"5"` and `5.0` are five. What
the proxy goes by is read by the same rules, else the two would disagree on what was asked. Pure: no sockets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from pydantic import TypeAdapter

from disaggc.proxy.failures import RefusedError

KV_PARAMS: Final = "kv_transfer_params"
XARGS: Final = "vllm_xargs"
IDENTITY: Final = frozenset({KV_PARAMS, "ec_transfer_params", "request_id"})
"""What names blocks on an engine or pairs legs: only the proxy may say it."""
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw])
_ANYTHING: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
_XARGS_OVERRIDES: Final = re.compile(
    r"(kv|ec)_transfer_params|request_id|transfer_id|do_remote_\w+|remote_\w+"
)
LARGE: Final = 1 << 16
"""Bytes above which what is sent stands in pieces instead of being copied together."""
Body = bytes | tuple[bytes | memoryview, ...]
"""Of a request to an engine: whole, or in pieces where it is large."""
_SHORT: Final = 512
_NO_OPTION: Final = object()
"""What is too long to be an option, or no value at all: not null, and of no type."""
_flag: Final = TypeAdapter(bool).validate_python
_whole: Final = TypeAdapter(int).validate_python
encode: Final = msgspec.json.Encoder().encode


def members_of(body: bytes) -> dict[str, Raw]:
    """Top-level members by name, of a name that stands twice the last, as engines read it; RefusedError 400."""
    try:
        return _OBJECT.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise RefusedError(400, f"the request body cannot be read: {exc}") from None


def pieces_of(found: Mapping[str, Raw]) -> Body:
    """The object of these members as bytes to send one after the other: large ones stay where the client's body is."""
    text = encode({name: value for name, value in found.items() if len(value) <= LARGE})[:-1]
    pieces: list[bytes | memoryview] = []
    for name, value in found.items():
        if len(value) > LARGE:
            pieces += (b"%b%b%b:" % (text, b"" if text == b"{" else b",", encode(name)), memoryview(value))
            text = b""
    return (*pieces, text + b"}")


def value_of(member: Raw | None) -> object:
    """The member's value; None when absent or null."""
    if member is None:
        return None
    if len(member) > _SHORT:
        return _NO_OPTION
    try:
        return _ANYTHING.decode(member)
    except (msgspec.DecodeError, RecursionError):
        return _NO_OPTION


def flag_of(found: Mapping[str, Raw], name: str) -> bool | None:
    """A boolean as vLLM reads it; None when absent or null, RefusedError 400 where vLLM would refuse it too."""
    value = value_of(found.get(name))
    if value is None or value is True or value is False:
        return value
    try:
        return _flag(value)
    except ValueError:
        raise RefusedError(400, f"{name}: Input should be a valid boolean") from None


def whole_of(found: Mapping[str, Raw], name: str) -> int | None:
    """A whole number as vLLM reads it; None when absent or null, RefusedError 400 where vLLM would refuse it too."""
    value = value_of(found.get(name))
    if value is None or type(value) is int:
        return value
    try:
        return _whole(value)
    except ValueError:
        raise RefusedError(400, f"{name}: Input should be a valid integer") from None


def without_identity(found: dict[str, Raw]) -> dict[str, Raw]:
    """The members less what only the proxy may say; the very same object where there is none of it."""
    if XARGS not in found and IDENTITY.isdisjoint(found):
        return found
    said = {key: value for key, value in found.items() if key not in IDENTITY}
    if XARGS in said:
        said[XARGS] = safe_xargs(said[XARGS])
    return said


def safe_xargs(value: Raw) -> Raw:
    """The extra arguments of vLLM less those that become KV parameters; RefusedError 400."""
    try:
        given = _ANYTHING.decode(value)
    except (msgspec.DecodeError, RecursionError):
        raise RefusedError(400, f"`{XARGS}` is not JSON") from None
    if not isinstance(given, dict):
        return value
    return Raw(encode({k: v for k, v in given.items() if not _XARGS_OVERRIDES.fullmatch(k)}))
