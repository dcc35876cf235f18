"""Mooncake's bootstrap server: where the workers of a prefill engine are. Both sides of it."""

from __future__ import annotations

import asyncio
import json

from disaggc.simengine.http import Call, Connection
from disaggc.simengine.wire import Said, TransferError


def tell(connection: Connection, call: Call, *, engine_id: str, worker: str) -> None:
    """The prefill side: one engine, of data-parallel rank 0."""
    if call.path != "/query":
        connection.answer_json(404, {"detail": "Not Found"})
        return
    connection.answer_json(200, {"0": {"engine_id": engine_id, "worker_addr": f"tcp://{worker}"}})


async def query(host: str, port: int, timeout_s: float) -> Said:
    """What a Mooncake bootstrap server says of its engines."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /query HTTP/1.1\r\nhost: bootstrap\r\nconnection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
        said = json.loads(answer.partition(b"\r\n\r\n")[2])
    except (OSError, TimeoutError, ValueError) as exc:
        raise TransferError(f"no bootstrap server at {host}:{port}: {type(exc).__name__}") from None
    if not isinstance(said, dict):
        raise TransferError("the bootstrap server answers nonsense")
    return said
