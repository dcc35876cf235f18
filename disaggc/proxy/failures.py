"""How a request can fail: refused by the proxy, or failed by an engine. Knows no sockets."""

from __future__ import annotations

from dataclasses import dataclass


class RefusedError(Exception):
    """The request ends here with this status and an error body as the API of its path has them."""

    def __init__(self, status: int, message: str, *, kind: str = "", retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind or _KINDS.get(status, "api_error")
        self.retry_after = retry_after


_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    408: "timeout_error",
    415: "invalid_request_error",
    431: "invalid_request_error",
    501: "invalid_request_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}


@dataclass(eq=False)
class LegError(Exception):
    """An engine failed a leg. `status` is what the client gets if nothing else can be tried."""

    reason: str
    """Told to the client: connect, tls, no descriptor, reset, timeout, status, no-params, bad-answer, aborted."""
    status: int = 502
    blame: bool = True
    """Whether it counts against the replica."""
    fresh: bool = True
    """False when a reused connection was closed before any byte: the engine's keep-alive, not a fault."""
    sent: bool = True
    """Whether the engine may have got the request."""
    prefill: bool = False
    """Whether it was the prefill leg."""

    def __str__(self) -> str:
        return self.reason
