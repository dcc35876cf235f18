"""Heads of client requests that were read before: the same head with another length needs no parser again.

Only whole heads that llhttp accepted and that may enter are kept, byte for byte but for the digits of their length; a
new table forgets them all. Whatever differs is not known here and is parsed. Knows no sockets.
"""

from __future__ import annotations

import re

from disaggc.proxy.requests import Request

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,9})\r\n")
_END = b"\r\n\r\n"
MAX_HEAD = 2048
MAX_KNOWN = 1024


class KnownHeads:
    """A bounded memory from the text of a head to the request it stands for, less the body."""

    __slots__ = ("_body_limit", "_head_limit", "_known")

    def __init__(self, *, header_bytes: int, body_bytes: int) -> None:
        self._known: dict[bytes, Request] = {}
        self._head_limit = min(MAX_HEAD, header_bytes - 16)
        self._body_limit = body_bytes

    def request(self, data: bytes) -> Request | None:
        """The request, when the bytes are exactly one with a known head."""
        end = data.find(_END, 0, self._head_limit)
        length = _LENGTH.search(data, 0, end + 2) if end > 0 else None
        if length is None:
            return None
        start, stop = length.span(1)
        known = self._known.get(data[:start] + data[stop:end])
        if known is None:
            return None
        size = int(length[1])
        if size > self._body_limit or len(data) != end + 4 + size:
            return None
        return Request(
            known.method, known.path, known.query, known.headers, data[end + 4 :], keep_alive=True, old=False,
            lines=known.lines,
        )  # fmt: skip

    def learn(self, data: bytes, request: Request) -> None:
        """A request was read from exactly these bytes by the parser and let in."""
        headers = request.headers
        end = data.find(_END, 0, self._head_limit)
        if end <= 0 or len(data) != end + 4 + len(request.body) or not request.keep_alive or request.old:
            return
        if b"content-length" not in headers or b"transfer-encoding" in headers or b"expect" in headers:
            return
        length = _LENGTH.search(data, 0, end + 2)
        if length is None or int(length[1]) != len(request.body):
            return
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        start, stop = length.span(1)
        self._known[data[:start] + data[stop:end]] = Request(
            request.method, request.path, request.query, headers, b"", keep_alive=True, old=False, lines=request.lines
        )  # fmt: skip
