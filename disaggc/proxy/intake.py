"""The receiving half of a client connection: strict HTTP parsing with limits, into whole requests.

Ambiguous framing is refused by llhttp's strict mode: two lengths, a length beside chunked, bare line feeds, folded
headers. Knows no answers and no engines.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Final

import httptools

from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.offers import MAX_OFFERS, without_offer
from disaggc.proxy.requests import Request, check_coding, path_and_query
from disaggc.proxy.service import Service

_SINGLE: Final = frozenset(
    {b"host", b"authorization", b"content-length", b"transfer-encoding", b"content-type", b"x-api-key"}
)
_VERSIONS: Final = ("1.1", "1.0")
_OPEN_PATHS: Final = (b"/health", b"/ready")
MAX_TARGET: Final = 8192
MIN_BODY_RATE: Final = 16 << 10
"""Bytes/s below which a body takes too long: the slowest mobile uplinks; 32 MiB may take 35 minutes, not a day."""
_MAX_PIECES: Final = 64
"""Of a body, kept apart; later ones are joined at once, or chunks of two bytes would take 30 times their size."""


class Intake:
    """Bytes in, requests out: a protocol of asyncio, but not derived from it, as compiled classes cannot be."""

    __slots__ = (
        "_began", "_body", "_body_size", "_counted", "_field_bytes", "_headers", "_in_body", "_offered", "_old",
        "_parser", "_url", "_whole", "closing", "receiving", "service", "since", "transport",
    )  # fmt: skip

    def __init__(self, service: Service) -> None:
        self.service = service
        self.transport: asyncio.Transport | None = None
        self.closing = False
        self.since = 0.0
        """When the connection last got on: a request's start, a piece of its body, the end of an answer."""
        self._parser = httptools.HttpRequestParser(self)
        self._whole: list[Request] = []
        """Complete, but not handed on: that is done when the parser has returned."""
        self._old = False
        self._began = 0.0
        """When the body's turn came."""
        self._offered = b""
        """A head that has to be read once more."""
        self._counted = False
        """Whether a body on its way is counted with those of the worker."""
        self._fresh()

    def _fresh(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._field_bytes = 0
        """Read since the request began, or since its last piece of body: its head, or what a body has around it."""
        self._body: list[bytes | bytearray] = []
        self._body_size = 0
        self._in_body = False
        self.receiving = False

    def arrived(self, request: Request) -> None:
        """A whole request is here."""
        raise NotImplementedError

    def refuse(self, refused: RefusedError) -> None:
        """Answer what never became a request, and close."""
        raise NotImplementedError

    def expected(self) -> None:
        """The client sends its body once it is told to."""
        raise NotImplementedError

    def body_begun(self) -> None:
        """A body is on its way, and more of it than came with its head."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self.closing:
            return
        if self._in_body or not self.receiving:
            self.since = monotonic()
        self.receiving = True
        self._field_bytes += len(data)
        refused = self._parse(data)
        while self._whole:
            self.arrived(self._whole.pop(0))
        if refused is not None:
            self.receiving = True
            self.refuse(refused)
        elif self._in_body or self._counted or self._field_bytes > self.service.bounds.header_bytes:
            self._unfinished()

    def _parse(self, data: bytes, offers: int = 0) -> RefusedError | None:
        """Whole requests go to `_whole`; what came before a fault is good."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as offered:
            self._whole.pop()  # without its body, which the parser takes for the other protocol
            if offers == MAX_OFFERS:
                return RefusedError(400, "too many requests ahead of their answers")
            self._parser = httptools.HttpRequestParser(self)
            head, self._offered = self._offered, b""
            self.receiving = True
            self._field_bytes = len(head)
            return self._parse(head + data[offered.args[0] :], offers + 1)
        except httptools.HttpParserCallbackError as exc:
            said = exc.__context__
            return said if isinstance(said, RefusedError) else RefusedError(400, "bad request")
        except httptools.HttpParserError:
            return RefusedError(400, "the request is not valid HTTP/1.1")
        return None

    def _unfinished(self) -> None:
        """A request that one read did not complete: what it holds is limited, alone and with all others."""
        bodies = self.service.bodies
        if self._field_bytes > self.service.bounds.header_bytes:
            self.refuse(RefusedError(431, "the request headers are too large"))
        elif self._in_body:
            self._counted = self.receiving = True
            bodies.hold(self, self._body_size)
            self.body_begun()
            for other in bodies.too_old(self.service.bounds.held_bytes):
                other.refuse(RefusedError(503, "too much of unfinished requests is waiting", retry_after=1))
        else:
            self._counted = False
            bodies.drop(self)

    def discard(self) -> None:
        """Let go of what is there of a request that will not be served."""
        self._headers, self._body = {}, []
        if self._counted:
            self._counted = False
            self.service.bodies.drop(self)

    def late(self, now: float) -> bool:
        """Whether the request on its way takes too long: by silence, or, with a body, by its size."""
        patience = self.service.table.timeouts.client_read_s
        if now - self.since > patience:
            return True
        return self._in_body and now - self._began > patience + self._body_size / MIN_BODY_RATE

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url
        if len(self._url) > MAX_TARGET:
            raise RefusedError(431, "the request target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; a repeated one that says who or how long is refused, others are joined."""
        if self._in_body:
            return  # trailers mean nothing
        name = name.lower()
        headers = self._headers
        if name in headers:
            if name in _SINGLE:
                raise RefusedError(400, f"header `{name.decode('latin-1')[:40]}` stands twice")
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        """The head is complete: refuse what would be refused anyway before its body is read."""
        self._in_body = True
        self._began = self.since = monotonic()
        version = self._parser.get_http_version()
        if version not in _VERSIONS:
            raise RefusedError(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        if self._parser.should_upgrade():
            parser = self._parser
            self._offered = without_offer(parser.get_method(), self._url, version, headers=self._headers)
            return
        headers, bounds = self._headers, self.service.bounds
        limit = bounds.header_bytes
        if self._field_bytes > limit and sum(len(n) + len(v) for n, v in headers.items()) > limit:
            raise RefusedError(431, "the request headers are too large")
        self._field_bytes = 0
        self._old = version != "1.1"
        if self._old:
            if b"transfer-encoding" in headers:
                raise RefusedError(400, "HTTP/1.0 has no transfer-encoding")
        elif b"host" not in headers:
            raise RefusedError(400, "the Host header is missing")
        elif headers.get(b"transfer-encoding", b"chunked") != b"chunked":
            check_coding(headers[b"transfer-encoding"])
        length = headers.get(b"content-length", b"")
        limit = bounds.body_bytes
        if length and int(length) > limit:
            raise RefusedError(413, f"the request body has {int(length)} bytes, the limit is {limit}")
        if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
            raise RefusedError(415, "compressed request bodies are not supported")
        if not self.service.authorised(headers) and path_and_query(self._url)[0] not in _OPEN_PATHS:
            self.service.tally.cells[Total.REFUSED_AUTH] += 1
            raise RefusedError(401, "the API key is missing or wrong")
        if b"expect" in headers and headers[b"expect"].lower() == b"100-continue":
            self.expected()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_size += len(body)
        limit = self.service.bounds.body_bytes
        if self._body_size > limit:
            raise RefusedError(413, f"the request body is larger than the limit of {limit} bytes")
        self._field_bytes = 0
        pieces = self._body
        if len(pieces) < _MAX_PIECES:
            pieces.append(body)
            return
        if len(pieces) == _MAX_PIECES:
            pieces.append(bytearray())
        pieces[-1] += body

    def on_message_complete(self) -> None:
        """A request is complete."""
        body = self._body
        request = Request(
            self._parser.get_method(),
            self._url,
            self._headers,
            body=b"".join(body) if len(body) != 1 else bytes(body[0]),
            keep_alive=self._parser.should_keep_alive(),
            old=self._old,
        )
        self._fresh()
        self._whole.append(request)
