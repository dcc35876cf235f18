"""An engine that answers generations with given bytes, piece by piece, and the pieces such answers are made of."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from disaggc.proxy.framing import LAST_CHUNK, chunk
from tests.proxy.engine import GENERATION, Engine

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
CLOSE = None
"""The engine closes the connection here."""


@dataclass(eq=False)
class Spoken(Engine):
    """Says `answers` one after the other, each a list of pieces, then answers as any engine does."""

    answers: deque[list[bytes | None]] = field(default_factory=deque)
    pause_s: float = 0.005

    async def _answer(self, path: str, body: dict, writer) -> bool:
        if path not in GENERATION or not self.answers:
            return await super()._answer(path, body, writer)
        for piece in self.answers.popleft():
            if piece is CLOSE:
                return False
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(self.pause_s)
        return True


def event(said: dict[str, Any], **style: Any) -> bytes:
    return b"data: " + json.dumps(said, **(style or {"separators": (",", ":")})).encode() + b"\n\n"


def token(text: str, finish: str | None = None, **more: Any) -> bytes:
    return event({"id": "d", "choices": [{"index": 0, "text": text, "finish_reason": finish}], **more})


def streamed(*bodies: bytes) -> list[bytes | None]:
    """A chunk for each, in a segment of its own."""
    return [CHUNKED, *map(chunk, bodies), LAST_CHUNK]


def whole(said: dict[str, Any] | bytes) -> list[bytes | None]:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    return [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    ]
