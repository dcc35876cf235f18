"""The head and the framing of an engine's answer, cut at chunk borders so that an error event can always follow.

Body bytes are never re-framed: what comes out is what came in, whole chunks at a time. Knows no sockets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MAX_HEAD: Final = 65536
MAX_HELD: Final = 1 << 20
"""A chunk larger than this goes out in pieces."""
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?")
_HEX: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n]{0,256})?")
_EVENT_END: Final = b"\n\n\r\n"
_MAX_DIGITS: Final = 18
"""Of a Content-Length: an exabyte, and far below what Python refuses to convert."""
_SIZE_LINE: Final = 300
"""Longest first line of a chunk, extensions included."""


class BadAnswerError(ValueError):
    """The engine's answer is not HTTP."""


@dataclass(frozen=True)
class Head:
    """What the proxy needs of a status line and headers."""

    status: int
    content_type: bytes
    """Empty when absent."""
    keep_alive: bool
    chunked: bool
    length: int | None
    """Content-Length; None for chunked and for answers that end with the connection."""
    event_stream: bool
    """Whether the body is a stream of events, however it is framed."""


@lru_cache(maxsize=1024)
def parse_head(text: bytes) -> Head:
    """The head without its final empty line; BadAnswerError when a length could be read two ways.

    Remembered, as an engine's heads repeat within the second of their date.
    """
    first, *lines = text.split(b"\r\n")
    match = _STATUS.fullmatch(first)
    if match is None:
        raise BadAnswerError("not an HTTP status line")
    if text.count(b"\n") != len(lines) or text.count(b"\r") != len(lines):
        raise BadAnswerError("a bare line end in the head")
    content_type, keep_alive, chunked, length = b"", match[1] == b"1", False, None
    for name, value in map(_field, lines):
        match name:
            case b"content-length":
                if (
                    not value.isdigit()
                    or len(value) > _MAX_DIGITS
                    or (length is not None and length != int(value))
                ):
                    raise BadAnswerError("content-length is not one number")
                length = int(value)
            case b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise BadAnswerError("unknown transfer-encoding")
                chunked = True
            case b"connection":
                said = value.lower()
                keep_alive = b"close" not in said and (keep_alive or b"keep-alive" in said)
            case b"content-type":
                content_type = content_type or value
            case b"content-encoding" if value.lower() not in (b"", b"identity"):
                # engines are not asked for it, clients would not be told, and nothing in it could be inspected
                raise BadAnswerError("a content-encoding that was not asked for")
    if chunked and length is not None:
        raise BadAnswerError("both content-length and transfer-encoding")
    status = int(match[2])
    if status in (204, 304) or status < 200:
        chunked, length = False, 0
    events = status == 200 and content_type.lower().startswith(b"text/event-stream")
    return Head(status, content_type, keep_alive, chunked, length, events)


def _field(line: bytes) -> tuple[bytes, bytes]:
    """Name, in small letters, and value of a header line."""
    name, colon, value = line.partition(b":")
    if not colon or not name or name.strip() != name:
        raise BadAnswerError("not an HTTP header")
    return name.lower(), value.strip()


class ChunkBorders:
    """Cuts a chunked body at chunk borders."""

    __slots__ = ("_held", "_tidy", "ended", "surplus")

    def __init__(self) -> None:
        self._held = b""
        self._tidy = True
        """Whether all that came out so far ends like an event of an engine."""
        self.ended = False
        self.surplus = False
        """Whether more came than belongs to the body: it is dropped, and the connection is good for nothing more."""

    def feed(self, data: bytes) -> bytes:
        """Whole chunks as they came, less the last, empty one, which sets `ended`; the rest is held.

        A chunk that is too large to be held comes out as several.
        """
        if self._held:
            data = self._held + data
            self._held = b""
        tidy, at, size = self._tidy, 0, len(data)
        while at < size:
            line = data.find(b"\r\n", at, at + _SIZE_LINE)
            if line < 0:
                _check_incomplete(data, at)
                break
            length = chunk_length(data[at:line])
            if length == 0:
                last = data.find(b"\r\n\r\n", line)  # after the trailers
                if last < 0 and size - line > MAX_HEAD:
                    raise BadAnswerError("trailers without an end")
                self.ended, self.surplus = last >= 0, 0 <= last < size - 4
                break
            end = line + length + 4
            if end > size:
                if size - at > MAX_HELD:
                    return self._passed(self._cut(data, at, line + 2, length=length))
                break
            tail = data[end - 4 : end]
            if tail != _EVENT_END:
                if tail[2:] != b"\r\n":
                    raise BadAnswerError("a chunk does not end where it says")
                tidy = False
            at = end
        if at < size:
            if not self.ended:
                self._held = data[at:]
            data = data[:at]
        return data if tidy else self._passed(data)

    def _passed(self, data: bytes) -> bytes:
        """What comes out where chunks do not end like events; as much of it as there is."""
        return data

    def _cut(self, data: bytes, at: int, start: int, *, length: int) -> bytes:
        """What is here of a huge chunk, as a chunk; what is left becomes one when it comes."""
        here = min(len(data) - start, length - 1)
        self._held = b"%x\r\n%b" % (length - here, data[start + here :])
        return data[:at] + chunk(data[start : start + here])


@lru_cache(maxsize=4096)
def chunk_length(line: bytes) -> int:
    """The size in a chunk's first line, without its line end."""
    match = _HEX.fullmatch(line)
    if match is None:
        raise BadAnswerError("not a chunk size")
    return int(match[1], 16)


def _check_incomplete(data: bytes, at: int) -> None:
    """A chunk size may still be on its way, but not for long."""
    if len(data) - at >= _SIZE_LINE or b"\n" in data[at:]:
        raise BadAnswerError("not a chunk size")


def dechunk(framed: bytes) -> bytes:
    """The body of whole chunks."""
    return b"".join([body for _, _, body in chunks(framed)])


def chunks(framed: bytes) -> list[tuple[int, int, bytes]]:
    """Where each whole chunk starts and ends, and its body; the last, empty one included."""
    parts: list[tuple[int, int, bytes]] = []
    at, size = 0, len(framed)
    while at < size:
        line = framed.find(b"\r\n", at, at + _SIZE_LINE)
        if line < 0:
            raise BadAnswerError("not a chunk size")
        start = line + 2
        length = chunk_length(framed[at:line])
        end = start + length + 2
        parts.append((at, end, framed[start : start + length]))
        if length == 0:
            break
        at = end
    return parts


def chunk(body: bytes) -> bytes:
    """One chunk."""
    return b"%x\r\n%b\r\n" % (len(body), body)


LAST_CHUNK: Final = b"0\r\n\r\n"
