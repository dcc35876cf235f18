"""Offers to speak another protocol, which are not taken up: HTTP/1.1 goes on as if they had not been made.

RFC 9110, 7.8 allows it. curl and Java's HttpClient offer h2c with their first request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from disaggc.proxy.failures import RefusedError

MAX_OFFERS: Final = 8
"""In one read: who offers another protocol waits for the answer."""
_OFFERING: Final = frozenset({b"upgrade", b"http2-settings"})


def without_offer(method: bytes, target: bytes, version: str, *, headers: Mapping[bytes, bytes]) -> bytes:
    """The head of a request, to be read once more; header names in lower case."""
    if method == b"CONNECT":
        raise RefusedError(400, "tunnels are not supported")
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode("ascii"))]
    for name, value in headers.items():
        if name == b"connection":
            tokens = [token for token in value.split(b",") if token.strip().lower() not in _OFFERING]
            lines.append(b"connection:" + b",".join(tokens))
        elif name not in _OFFERING:
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"
