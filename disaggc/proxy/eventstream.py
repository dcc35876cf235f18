"""Server-sent events: cuts a stream, however an engine frames it, into chunks of whole events.

Engines send an event, or several, as a chunk: such chunks pass as they are. Anything else (an event in two chunks,
other line ends, no chunks at all) is held until an event is whole and comes out as vLLM would have written it, so
that nothing behind this has to know of it. Knows no JSON and no sockets.
"""

from __future__ import annotations

import re
from typing import Final

from disaggc.proxy.framing import BadAnswerError, ChunkBorders, chunk, dechunk

MAX_EVENT: Final = 16 << 20
"""Bytes of one unfinished event; the largest real ones carry the log-probabilities of a long prompt."""
_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_EVENT_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")
_DATA: Final = b"data:"


class EventBorders(ChunkBorders):
    """Cuts the body of a stream, which is chunked, at the ends of events: whole events in whole chunks."""

    __slots__ = ("_parts", "_size", "_tail")

    def __init__(self) -> None:
        ChunkBorders.__init__(self)  # super() costs 0.4 us
        self._parts: list[bytes] = []
        """Of an unfinished event."""
        self._size = 0
        self._tail = b""

    def finish(self) -> bytes:
        """What is still held, at the end of the body: clients differ in whether they read an unfinished event."""
        left = b"".join(self._parts)
        self._parts.clear()
        return _rechunked(left + b"\n\n")

    def _passed(self, data: bytes) -> bytes:
        data = self._whole(dechunk(data))
        self._tidy = not self._parts
        return data + self.finish() if self.ended else data

    def _whole(self, data: bytes) -> bytes:
        near = self._tail + data
        end = max(at + len(mark) if (at := near.rfind(mark)) >= 0 else 0 for mark in _EVENT_ENDS)
        if end == 0:
            self._tail = near[-2:]
            self._keep(data)
            return b""
        cut = end - len(self._tail)
        whole = b"".join(self._parts) + data[:cut]
        self._parts.clear()
        self._size = 0
        self._tail = near[end:][-2:]
        self._keep(data[cut:])
        return _rechunked(whole)

    def _keep(self, data: bytes) -> None:
        if data:
            self._parts.append(data)
            self._size += len(data)
            if self._size > MAX_EVENT:
                raise BadAnswerError("an event without an end")


class UnchunkedBorders(EventBorders):
    """The same for a stream with a length, or one that ends with the connection."""

    __slots__ = ("_left",)

    def __init__(self, length: int | None) -> None:
        super().__init__()
        self._left = length

    def feed(self, data: bytes) -> bytes:
        """Whole events, as chunks; the rest is held. Sets `ended` after the last."""
        if self._left is not None:
            if len(data) > self._left:
                data, self.surplus = data[: self._left], True
            self._left -= len(data)
            self.ended = self._left == 0
        data = self._whole(data)
        return data + self.finish() if self.ended else data


def _rechunked(body: bytes) -> bytes:
    """Events as one chunk; nothing where there are none."""
    events = b"".join(split_events(body))
    return chunk(events) if events else b""


def split_events(body: bytes) -> list[bytes]:
    """Each event of whole ones, comments too, as vLLM writes it: `data: `, one line, bare line feeds."""
    events: list[bytes] = []
    lines: list[bytes] = []
    for line in _LINE_END.split(body.removeprefix(_BOM)):
        if line:
            lines.append(line)
        elif lines:
            events.append(_written(lines))
            lines = []
    if lines:
        events.append(_written(lines))
    return events


def _written(lines: list[bytes]) -> bytes:
    values = [line[5:].removeprefix(b" ") for line in lines if line.startswith(_DATA)]
    others = [line for line in lines if not line.startswith(_DATA)]
    if len(values) > 1 and values[0][:1] in (b"{", b"["):
        values = [b" ".join(values)]  # a line end between two members of JSON is a space
    return b"\n".join([*others, *[b"data: " + value for value in values]]) + b"\n\n"


def value_of(event: bytes) -> bytes:
    """The value of an event that `split_events` gave; empty where it has none, or one of several lines."""
    if event.startswith(b"data: "):
        return event[6:].removesuffix(b"\n\n")
    at = event.find(b"\ndata: ")
    return event[at + 7 :].removesuffix(b"\n\n") if at >= 0 else b""
