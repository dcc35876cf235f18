"""The sending half of a client connection: writes, back-pressure onto the engine, and when a client is given up.

Knows no requests; where something waits for the client to catch up, the subclass is told.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from time import monotonic
from typing import Final

from disaggc.proxy.intake import Intake
from disaggc.proxy.service import Service
from disaggc.proxy.upstream import Connection

LINGER_S: Final = 2.0
"""A client that has its last answer may still be sending: closing at once would take the answer from it."""


class Outlet(Intake):
    """Bytes out, at the client's pace."""

    __slots__ = ("_moved", "_throttled", "_unsent", "stalled")

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._throttled: Connection | None = None
        self.stalled = False
        """Whether the client does not take its bytes."""
        self._unsent = 0
        self._moved = 0.0
        """When the client last took some, as far as it was looked at: only while it is stalled or let go."""

    def client_caught_up(self) -> None:
        """What was written is with the client."""
        raise NotImplementedError

    def pause_writing(self) -> None:
        """The client does not keep up: take no more from the engine."""
        self.stalled = True
        self.watch(monotonic())
        if self._throttled is not None:
            self._throttled.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.stalled = False
        if self._throttled is not None:
            self._throttled.resume()
        self.client_caught_up()

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self.transport is not None:
            self.service.outbox.send(self.transport, data)

    def throttle(self, connection: Connection | None) -> None:
        """Pause this engine connection while the client does not take its bytes; None = no longer."""
        self._throttled = connection
        if connection is not None and self.stalled:
            connection.pause()

    def watch(self, now: float) -> None:
        """From now on the client has to take what is there."""
        self._unsent, self._moved = 0, now

    def stuck(self, now: float) -> bool:
        """Whether the client took nothing for too long of what it has to take, or everything and stays."""
        unsent = 0 if self.transport is None else unsent_bytes(self.transport)
        if unsent < self._unsent:
            self._moved = now
        self._unsent = unsent
        patience = self.service.table.timeouts.client_write_s if unsent or self.stalled else LINGER_S
        return now - self._moved > patience


def unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes that wait here and, where the system says it (Linux: SIOCOUTQ), in the kernel.

    The transport alone sees a slow client move in steps of the kernel's send buffer, megabytes apart.
    """
    try:
        waiting = transport.get_write_buffer_size()
        answer = bytearray(struct.calcsize("i"))
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, answer, True)  # noqa: FBT003
    except (OSError, RuntimeError, AttributeError):
        return 0
    (queued,) = struct.unpack("i", answer)
    return int(waiting + queued)
