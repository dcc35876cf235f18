"""Top-level members of a JSON object as byte ranges, so that a megabyte prompt is copied, never decoded.

Finds where each member starts and ends; what stands deep inside is left to the engine, which parses it anyway.
Stricter than an engine at the top level: a body whose keys could be read in two ways is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set as AbstractSet
from typing import NamedTuple

_STRING_REST = re.compile(rb'(?:[^"\\\x00-\x1f]|\\.)*+"')
_OPEN = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*")
_MEMBER = re.compile(
    rb'"((?:[^"\\\x00-\x1f]|\\.)*+)"[ \t\r\n]*:[ \t\r\n]*+'
    rb"(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[ \t\r\n,}])|true|false|null)?"
)
_AFTER = re.compile(rb"[ \t\r\n]*(?:,[ \t\r\n]*|(\}))")
_SCALAR = re.compile(rb"(?:-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)")
_STRUCTURE = re.compile(rb'["{}\[\]]')
_QUOTE, _BACKSLASH = 0x22, 0x5C
_DEPTH = 128
_SEARCHES = 32


class NotAnObjectError(ValueError):
    """The text is not a JSON object at its top level."""


class Member(NamedTuple):
    """One member: `start` is its key's opening quote, the value is text[value:end]."""

    key: str
    start: int
    value: int
    end: int


def string_end(text: bytes, start: int) -> int:
    """Position after the closing quote of the string whose opening quote is at `start`."""
    at = start + 1
    for _ in range(_SEARCHES):
        at = text.find(b'"', at)
        if at < 0:
            raise NotAnObjectError("a string does not end")
        back = at - 1
        while text[back] == _BACKSLASH:
            back -= 1
        if (at - back) % 2 == 1:
            return at + 1
        at += 1
    match = _STRING_REST.match(text, at)
    if match is None:
        raise NotAnObjectError("a string does not end")
    return match.end()


def _container_end(text: bytes, start: int) -> int:
    closing = []
    at = start
    while True:
        match = _STRUCTURE.search(text, at)
        if match is None:
            raise NotAnObjectError("a value does not end")
        at = match.end()
        match text[at - 1]:
            case 0x22:
                at = string_end(text, at - 1)
            case 0x7B:
                closing.append(0x7D)
            case 0x5B:
                closing.append(0x5D)
            case close:
                if closing.pop() != close:
                    raise NotAnObjectError("brackets do not match")
                if not closing:
                    return at
        if len(closing) > _DEPTH:
            raise NotAnObjectError(f"nested deeper than {_DEPTH}")


def value_end(text: bytes, start: int) -> int:
    """Position after the JSON value that starts at `start`."""
    first = text[start : start + 1]
    if first == b'"':
        return string_end(text, start)
    if first in (b"{", b"["):
        return _container_end(text, start)
    match = _SCALAR.match(text, start)
    if match is None:
        raise NotAnObjectError("a value is not JSON")
    return match.end()


def members(text: bytes) -> list[Member]:
    """The members of the object in order, repeated keys included; NotAnObjectError when it is none."""
    opening = _OPEN.match(text)
    if opening is None:
        raise NotAnObjectError("the body is not a JSON object")
    at = opening.end()
    found: list[Member] = []
    if text[at : at + 1] == b"}":
        return _ended(text, at + 1, found)
    while True:
        match = _MEMBER.match(text, at)
        if match is None:
            raise NotAnObjectError("a member is not `name: value`")
        key, value = match[1], match.end()
        if match[2] is None:
            end = value_end(text, value)
        else:
            value, end = match.span(2)
        name = key.decode("ascii") if key.isascii() and b"\\" not in key else _decoded(key)
        found.append(Member(name, match.start(1) - 1, value, end))
        after = _AFTER.match(text, end)
        if after is None:
            raise NotAnObjectError(f"no comma after `{name[:40]}`")
        at = after.end()
        if after[1] == b"}":
            return _ended(text, at, found)


def _ended(text: bytes, at: int, found: list[Member]) -> list[Member]:
    if text[at:].strip(b" \t\r\n"):
        raise NotAnObjectError("text after the object")
    return found


def _decoded(key: bytes) -> str:
    """The name as the engine reads it: `kv` written with escapes must not pass as another key."""
    try:
        return str(json.loads(b'"' + key + b'"'))
    except ValueError as exc:
        raise NotAnObjectError("a name is not JSON") from exc


Pieces = list[bytes | memoryview]
"""A body as consecutive pieces; large ones are views of the client's bytes."""


def splice(text: bytes, found: list[Member], *, drop: AbstractSet[str], add: bytes) -> Pieces:
    """The object without the members named in `drop` and with `add` (members as JSON text, no outer braces) at its end.

    Kept members stay byte for byte; runs of them are one piece, and nothing large is copied.
    """
    whole = memoryview(text)
    runs: list[tuple[int, int]] = []
    open_run = False
    for member in found:
        if member.key in drop:
            open_run = False
        elif open_run:
            runs[-1] = (runs[-1][0], member.end)
        else:
            runs.append((member.start, member.end))
            open_run = True
    pieces: Pieces = []
    before = b"{"
    for start, end in runs:
        pieces += (before, whole[start:end])
        before = b","
    pieces.append((before + add if add else b"" if runs else b"{") + b"}")
    return pieces
