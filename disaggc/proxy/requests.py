"""A client's request after parsing, and the heads of requests to engines and of answers to clients. No sockets."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from disaggc.proxy.failures import RefusedError
from disaggc.proxy.members import LARGE, Body
from disaggc.proxy.upstream import Message

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._\-]{0,127}")
_ORIGIN: Final = re.compile(rb"https?://[^/?#]+", re.IGNORECASE)
_RANDOM_TAIL: Final = re.compile(rb"-[0-9a-f]{8}\Z")
_FORWARDED: Final = frozenset({
    b"authorization", b"traceparent", b"tracestate", b"b3", b"x-b3-traceid", b"x-b3-spanid", b"x-b3-sampled",
    b"x-b3-parentspanid", b"x-b3-flags", b"x-api-key", b"anthropic-version", b"anthropic-beta",
})  # fmt: skip
"""Headers an engine may see of the client's; all others stop here."""
REASONS: Final = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 404: b"Not Found", 405: b"Method Not Allowed",
    408: b"Request Timeout", 413: b"Content Too Large", 415: b"Unsupported Media Type", 422: b"Unprocessable Content",
    429: b"Too Many Requests", 431: b"Request Header Fields Too Large", 500: b"Internal Server Error",
    501: b"Not Implemented", 502: b"Bad Gateway", 503: b"Service Unavailable", 504: b"Gateway Timeout",
    505: b"HTTP Version Not Supported",
}  # fmt: skip

MESSAGES_PATH: Final = b"/v1/messages"
_OF_MESSAGES: Final = {
    405: "invalid_request_error", 413: "request_too_large", 415: "invalid_request_error", 500: "api_error",
    502: "api_error",
}  # fmt: skip
"""Types of errors where Anthropic has another word than OpenAI, or none of ours."""


class Request:
    """One request of a client."""

    __slots__ = ("body", "headers", "keep_alive", "method", "old", "path", "query")

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: dict[bytes, bytes],
        *,
        body: bytes,
        keep_alive: bool,
        old: bool,
    ) -> None:
        self.method = method
        self.path, self.query = path_and_query(target)
        self.headers = headers
        """Names in lower case, each once."""
        self.body = body
        self.keep_alive = keep_alive
        self.old = old
        """HTTP/1.0: no chunked answers."""


@lru_cache(maxsize=256)
def path_and_query(target: bytes) -> tuple[bytes, bytes]:
    """Of a request's target, in origin form or, as clients of proxies send it, in absolute form (RFC 9112, 3.2.2)."""
    if not target.startswith(b"/") and (origin := _ORIGIN.match(target)) is not None:
        target = target[origin.end() :]
        if not target.startswith(b"/"):
            target = b"/" + target
    path, _, query = target.partition(b"?")
    return path, query.partition(b"#")[0] if query else query


def request_id(given: bytes | None) -> str:
    """The client's id where it is safe to pass on, else a new one.

    An id that ends like the tail that engines cut off (`-` and 8 hex digits) gets a suffix, so that both legs match.
    """
    if given is None or not _REQUEST_ID.fullmatch(given):
        return random.getrandbits(128).to_bytes(16).hex()
    text = given.decode("ascii")
    return text + ".0" if _RANDOM_TAIL.search(given) else text


def forwarded(headers: Mapping[bytes, bytes]) -> bytes:
    """The client's headers that engines see, as header lines."""
    return b"".join([b"%b: %b\r\n" % (name, headers[name]) for name in _FORWARDED.intersection(headers)])


def engine_request(target: bytes, body: Body | None, *, lines: bytes, request: str) -> Message:
    """A request to an engine; `target` as `engine_target` gives it, `lines` are header lines already checked."""
    if body is None:
        return b"%bx-request-id: %b\r\n%b\r\n" % (target, request.encode("ascii"), lines)
    size = len(body) if isinstance(body, bytes) else sum(map(len, body))
    head = b"%bcontent-type: application/json\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b\r\n" % (
        target, size, request.encode("ascii"), lines,
    )  # fmt: skip
    if isinstance(body, bytes):
        return (head, body) if size > LARGE else head + body
    return (head, *body)


def engine_target(method: bytes, path: bytes, authority: bytes) -> bytes:
    """Request line and Host of a request to an engine."""
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method, path, authority)


def answer_head(status: int, lines: bytes, *, keep_alive: bool) -> bytes:
    """Head of an answer to a client; `lines` are header lines."""
    close = b"" if keep_alive else b"connection: close\r\n"
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, REASONS.get(status, b"Status"), lines, close)


def check_coding(coding: bytes) -> None:
    """Refuse a Transfer-Encoding other than `chunked`, whose body would be read wrongly (RFC 9112, 6.1 and 6.3)."""
    codings = [one.strip().lower() for one in coding.split(b",") if one.strip()]
    if codings == [b"chunked"]:
        return
    if codings[-1:] != [b"chunked"] or codings.count(b"chunked") > 1:
        raise RefusedError(400, "a transfer-encoding ends with `chunked`, which stands once")
    raise RefusedError(501, "no transfer-encoding but `chunked` is understood here")


def error_body(refused: RefusedError, path: bytes) -> bytes:
    """The error object that clients of this path read: OpenAI's, or Anthropic's under `/v1/messages`."""
    if path.startswith(MESSAGES_PATH):
        kind = _OF_MESSAGES.get(refused.status, refused.kind)
        return json.dumps({"type": "error", "error": {"type": kind, "message": refused.message}}).encode()
    return json.dumps(
        {"error": {"message": refused.message, "type": refused.kind, "param": None, "code": refused.status}}
    ).encode()
