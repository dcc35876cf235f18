"""How clients of each API learn that a stream which has begun will not be completed."""

from __future__ import annotations

import json

from disaggc.proxy.asks import MESSAGES, RESPONSES, Api


def error_event(api: Api, reason: str, status: int) -> bytes:
    """The event by which clients of that API learn that a stream failed."""
    message = f"decode failed while streaming: {reason}"
    said: dict[str, object]
    if api is MESSAGES:
        kind = "timeout_error" if status == 504 else "overloaded_error" if status == 503 else "api_error"
        said = {"type": "error", "error": {"type": kind, "message": message}}
    elif api is RESPONSES:
        said = {"type": "error", "code": "upstream_error", "message": message}
    else:
        said = {"error": {"message": message, "type": "upstream_error", "param": None, "code": status}}
    event = b"event: error\n" if api in (MESSAGES, RESPONSES) else b""
    return event + b"data: " + json.dumps(said).encode() + b"\n\n"
