"""Starting worker processes: their listening sockets, their link to the control process, their end.

Knows nothing of tables and requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from disaggc.proxy.board import Board
from disaggc.proxy.worker import BACKLOG, MAX_ORDER


@dataclass(slots=True, eq=False)
class WorkerHandle:
    """One worker process and its link."""

    position: int
    process: subprocess.Popen[bytes]
    writer: asyncio.StreamWriter
    acknowledged: int = -1
    refused: str | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


def listeners(host: str, port: int, *, count: int) -> list[socket.socket]:
    """One socket for each worker on the same port; a port that another process has is an error, not a share."""
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
    found = []
    for _ in range(count):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        found.append(listener)
    return found


@contextlib.asynccontextmanager
async def worker_process(
    board: Board, listener: socket.socket, position: int
) -> AsyncIterator[tuple[WorkerHandle, asyncio.StreamReader]]:
    """A worker while the context is open, and what it says."""
    ours, theirs = socket.socketpair()
    descriptors = (board.descriptor, listener.fileno(), theirs.fileno())
    arguments = map(str, (position, board.workers, *descriptors))
    process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own interpreter; starting takes no time worth a thread
        [sys.executable, "-m", "disaggc.proxy.worker", *arguments],
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_ORDER)
    try:
        yield WorkerHandle(position, process, writer), reader
    finally:
        writer.close()
        if process.poll() is None:
            process.kill()
