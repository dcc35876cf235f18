"""The connections to one engine: idle ones, the most recently used first, and new ones. Knows no HTTP."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol, cast

from disaggc.proxy.failures import LegError
from disaggc.proxy.outbox import Outbox
from disaggc.proxy.upstream import Connection

_LOG = logging.getLogger(__name__)
_OURS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


class Opener(Protocol):
    """Who waits for a new connection; told exactly once, later."""

    def opened(self, connection: Connection) -> None:
        """It is open, and owned by whom is told here."""

    def failed(self, error: LegError) -> None:
        """It cannot be opened in time."""


def connect_fault(exc: OSError) -> LegError:
    """Why a connection could not be opened; what this process lacks is no engine's fault."""
    if isinstance(exc, ssl.SSLError):
        return LegError("tls")  # somebody is there, and waiting makes nothing better
    if exc.errno not in _OURS:
        return LegError("connect", sent=False)
    return LegError("no descriptor", status=503, blame=False, sent=False)


class ConnectionPool:
    """Keep-alive connections to one engine."""

    def __init__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None, idle_s: float, outbox: Outbox
    ) -> None:
        self._host = host.strip("[]")
        self._port = port
        self._tls = tls
        self.idle_s = idle_s
        self.idle: deque[Connection] = deque()
        self.outbox = outbox
        self._retired = False
        self._said = 0.0
        """When it last logged that connections cannot be opened."""
        self._opening: set[asyncio.Task[None]] = set()
        self.on_connect: Callable[[], None] = lambda: None

    def take(self, now: float) -> Connection | None:
        """An idle connection that is open and not too old, the most recently used first."""
        idle, oldest = self.idle, now - self.idle_s
        while idle:
            connection = idle.pop()
            if connection.idle_since >= oldest and connection.usable:
                return connection
            connection.close()
        return None

    def open(self, opener: Opener, timeout_s: float) -> None:
        """A new connection for the opener."""
        self.on_connect()
        task = asyncio.get_running_loop().create_task(self._open(opener, timeout_s))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, opener: Opener, timeout_s: float) -> None:
        try:
            connection = Connection(self)
            async with asyncio.timeout(timeout_s):
                await asyncio.get_running_loop().create_connection(
                    lambda: cast("asyncio.Protocol", connection), self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            opener.failed(LegError("connect", status=504, sent=False))
        except OSError as exc:
            fault, now = connect_fault(exc), monotonic()
            if not fault.blame and now > self._said + 1.0:
                self._said = now
                _LOG.error("no connection to an engine can be opened: %s", exc)
            opener.failed(fault)
        else:
            if connection.usable:
                opener.opened(connection)
            else:
                opener.failed(LegError("connect", sent=False))  # the engine closed it before anybody had it

    def put_back(self, connection: Connection) -> None:
        """Nobody owns the connection."""
        if self._retired:
            connection.close()
        else:
            connection.idle_since = monotonic()
            self.idle.append(connection)

    # --- cleaning ---

    def close_idle(self, now: float) -> None:
        """Close what has been idle too long; the engine would close it under a request otherwise."""
        while self.idle and self.idle[0].idle_since < now - self.idle_s:
            self.idle.popleft().close()

    def retire(self) -> None:
        """The replica gets no new requests: connections close as they become idle."""
        self._retired = True
        while self.idle:
            self.idle.pop().close()
