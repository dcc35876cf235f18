"""The head and the framing of an engine's answer, cut at chunk borders so that an error event can always follow.

Body bytes are never re-framed: what comes out is what came in, whole chunks at a time. Knows no sockets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

MAX_HEAD = 65536
MAX_HELD = 1 << 20
"""A chunk larger than this goes out in pieces."""
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: [^\r\n]*)?")
_HEX = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n]{0,256})?")
_SIZE_LINE = 300
"""Longest first line of a chunk, extensions included."""


class BadAnswerError(ValueError):
    """The engine's answer is not HTTP."""


@dataclass(frozen=True, slots=True)
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
    """Whether the body is a stream of events that can be passed on in its own chunks."""


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
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name or name.strip() != name:
            raise BadAnswerError("not an HTTP header")
        match name.lower():
            case b"content-length":
                value = value.strip()
                if not value.isdigit() or (length is not None and length != int(value)):
                    raise BadAnswerError("content-length is not one number")
                length = int(value)
            case b"transfer-encoding":
                if value.strip().lower() != b"chunked":
                    raise BadAnswerError("unknown transfer-encoding")
                chunked = True
            case b"connection":
                value = value.lower()
                keep_alive = b"close" not in value and (keep_alive or b"keep-alive" in value)
            case b"content-type":
                content_type = content_type or value.strip()
    if chunked and length is not None:
        raise BadAnswerError("both content-length and transfer-encoding")
    status = int(match[2])
    if status in (204, 304) or status < 200:
        chunked, length = False, 0
    events = chunked and status == 200 and content_type.startswith(b"text/event-stream")
    return Head(status, content_type, keep_alive, chunked, length, events)


class ChunkBorders:
    """Cuts a chunked body at chunk borders."""

    __slots__ = ("_held", "_left", "at_border", "ended")

    def __init__(self) -> None:
        self._held = b""
        self._left = 0
        self.at_border = True
        """Whether everything let through so far ends at a chunk border."""
        self.ended = False

    def feed(self, data: bytes) -> bytes:
        """Whole chunks as they came, the rest is held. Sets `ended` after the last; bytes after that are an error."""
        if self._held:
            data = self._held + data
            self._held = b""
        at = 0
        if self._left:
            at = min(self._left, len(data))
            self._left -= at
            if self._left:
                return data
        size = len(data)
        done = at
        while at < size:
            line = data.find(b"\r\n", at, at + _SIZE_LINE)
            if line < 0:
                _check_incomplete(data, at)
                break
            length = chunk_length(data[at:line])
            if length == 0:
                self.ended = _last_ends(data, line + 2)
                done = size if self.ended else at
                break
            end = line + length + 4
            if end > size:
                if size - at > MAX_HELD:
                    self._left = end - size
                    done = size
                break
            if data[end - 2 : end] != b"\r\n":
                raise BadAnswerError("a chunk does not end where it says")
            at = done = end
        self.at_border = self._left == 0
        if done == size:
            return data
        self._held = data[done:]
        return data[:done]


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


def _last_ends(data: bytes, after_size: int) -> bool:
    """Whether the last chunk and its trailers are complete; nothing may follow them."""
    end = data.find(b"\r\n\r\n", after_size - 2)
    if end < 0:
        return False
    if end + 4 != len(data):
        raise BadAnswerError("bytes after the last chunk")
    return True


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


LAST_CHUNK = b"0\r\n\r\n"
