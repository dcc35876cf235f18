"""What a double writes: one line when it serves, and one for each answer as uvicorn does at vLLM."""

from __future__ import annotations

import sys
from collections.abc import Collection
from http import HTTPStatus
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from disaggc.simengine.http import Call, Connection
    from disaggc.simengine.options import Options

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def url_of(host: str, port: int) -> str:
    """Where it can be asked."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def start_line(options: Options, *, port: int, admin_port: int) -> str:
    """Address, model, role, clock and the interface for faults, in one line."""
    connector = options.connector
    role = "without KV transfer" if connector is None else f"as {connector.role} of {connector.dialect}"
    clock = f"{options.scale:g} times as fast as the clock" if options.scale != 1 else "by the clock"
    faults = "no port for faults (--admin-port)"
    if options.admin is not None:
        faults = f"faults at {url_of(options.admin[0], admin_port)}"
    name = (
        options.served[0] if options.served[0] == options.model else f"{options.served[0]} ({options.model})"
    )
    return (
        f"INFO:     double of vLLM {options.version} serves {name} at {url_of(options.host, port)}, {role}, {clock}, "
        f"{faults}"
    )


class AccessLog:
    """A line for each answer as it begins; silent: paths of which nothing is written."""

    def __init__(self, silent: Collection[str] = (), to: TextIO | None = None) -> None:
        self._silent = frozenset(silent)
        self._to = sys.stdout if to is None else to

    def __call__(self, connection: Connection, call: Call, status: int) -> None:
        """`INFO:     127.0.0.1:38052 - "POST /v1/completions HTTP/1.1" 200 OK`."""
        if call.path in self._silent:
            return
        host, port = connection.transport.get_extra_info("peername", ("", 0))[:2]
        phrase = _PHRASES.get(status, "")
        self._to.write(
            f'INFO:     {host}:{port} - "{call.method} {call.target} HTTP/1.1" {status} {phrase}\n'
        )
        self._to.flush()
