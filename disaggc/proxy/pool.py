"""The keep-alive connections to one engine, the most recently used first. Knows no HTTP."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from time import monotonic

from disaggc.proxy.failures import LegError
from disaggc.proxy.upstream import Connection


class ConnectionPool:
    """Keep-alive connections to one engine, the most recently used first."""

    def __init__(self, host: str, port: int, *, tls: ssl.SSLContext | None, idle_s: float) -> None:
        self._host = host.strip("[]")
        self._port = port
        self._tls = tls
        self.idle_s = idle_s
        self._idle: deque[Connection] = deque()
        self._open: set[Connection] = set()
        self.on_connect: Callable[[], None] = lambda: None

    def idle(self) -> Connection | None:
        """A connection that is open and not too old, the most recently used first."""
        oldest = monotonic() - self.idle_s
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since >= oldest and connection.usable:
                return connection
            connection.close()
        return None

    async def connect(self, timeout_s: float) -> Connection:
        """A new connection; LegError when it cannot be opened in time."""
        self.on_connect()
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self), self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            raise LegError("connect", status=504, sent=False) from None
        except OSError:
            raise LegError("connect", sent=False) from None
        self._open.add(connection)
        return connection

    def put_back(self, connection: Connection) -> None:
        """The connection's answer is complete."""
        if not connection.usable:
            return
        connection.idle_since = monotonic()
        connection.resume()
        self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """The connection is gone."""
        self._open.discard(connection)

    def close_idle(self, now: float) -> None:
        """Close what has been idle too long; the engine would close it under a request otherwise."""
        while self._idle and self._idle[0].idle_since < now - self.idle_s:
            self._idle.popleft().close()

    def close_all_idle(self) -> None:
        """The replica is no longer used for new requests."""
        while self._idle:
            self._idle.pop().close()

    @property
    def open_connections(self) -> int:
        """Open connections, idle ones included."""
        return len(self._open)
