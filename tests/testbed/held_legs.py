"""A gate in front of an engine that lets everything through but requests for one model while it holds those back.

With it a request of the proxy stands still between its two legs for as long as a test wants.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Gate:
    """Listens on a port of its own and passes connections on to `port`."""

    def __init__(self, port: int, *, holds: bytes) -> None:
        self._target, self._holds = port, holds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.closed = False
        """Holds requests back now."""
        self.held = 0
        self.gone = 0
        """Held requests whose sender hung up."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            first = client.recv(1 << 20)
            # a body may come in a second piece
            while first and b"\r\n\r\n" in first and not _whole(first):
                first += client.recv(1 << 20)
            if self.closed and self._holds in first:
                self.held += 1
                while client.recv(1 << 16):
                    pass
                self.gone += 1
                return
            with socket.create_connection(("127.0.0.1", self._target)) as engine:
                engine.sendall(first)
                back = threading.Thread(target=_pour, args=(engine, client), daemon=True)
                back.start()
                _pour(client, engine)
                back.join()

    def end(self) -> None:
        """Listen no more."""
        self._listener.close()


def _whole(request: bytes) -> bool:
    head, _, body = request.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return len(body) >= int(value)
    return True


def _pour(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def gate(port: int, *, holds: bytes) -> Iterator[Gate]:
    """A gate while the context is open."""
    made = Gate(port, holds=holds)
    try:
        yield made
    finally:
        made.end()
