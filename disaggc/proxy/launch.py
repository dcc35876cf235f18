"""Starting a proxy from its routing file: read, check what can be checked, run the control process."""

from __future__ import annotations

import asyncio
import logging
import resource
import ssl
from pathlib import Path

import uvloop

from disaggc import __version__
from disaggc.proxy.compiled import is_compiled
from disaggc.proxy.control import Control
from disaggc.proxy.service import SecretError, read_secret
from disaggc.proxy.tables import RoutingFile
from disaggc.routing.limits import Listen
from disaggc.routing.table import RoutingTable
from disaggc.routing.text import TableError

_LOG = logging.getLogger(__name__)


class LaunchError(Exception):
    """The proxy cannot start; the message says why."""


def read_table(file: RoutingFile, *, host: str | None, port: int | None) -> RoutingTable:
    """The table of a routing file with the command line's address; LaunchError with every fault of the file."""
    try:
        table = file.start()
    except OSError as exc:
        raise LaunchError(f"the routing file cannot be read: {exc}") from None
    except TableError as exc:
        raise LaunchError(f"{file.path} is not a routing file:\n{exc}") from None
    if host is None and port is None:
        return table
    changed = {"host": host or table.listen.host, "port": port or table.listen.port}
    try:
        listen = Listen.model_validate({**table.listen.model_dump(), **changed})
    except ValueError as exc:
        raise LaunchError(f"the address is not usable: {exc}") from None
    return table.model_copy(update={"listen": listen})


def launch(config: Path, *, workers: int, host: str | None = None, port: int | None = None) -> None:
    """Serve until SIGTERM; LaunchError when that cannot start."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    if is_compiled():
        _LOG.info("disaggc %s, compiled", __version__)
    else:
        _LOG.info(
            "disaggc %s, interpreted: a wheel built beside a C compiler spends half the time in Python",
            __version__,
        )
    file = RoutingFile(config)
    table = read_table(file, host=host, port=port)
    try:
        for source in (table.api_key, table.listen.admin_token):
            if source is not None:
                read_secret(source)
    except SecretError as exc:
        raise LaunchError(str(exc)) from None
    _raise_descriptor_limit()

    async def live() -> None:
        await Control(file, table, workers=workers).run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(live())
    except (OSError, ssl.SSLError, TableError) as exc:
        raise LaunchError(f"the proxy cannot start: {exc}") from None


def _raise_descriptor_limit() -> None:
    """Two descriptors a stream: the soft limit of most systems (1,024) would end at 500 streams."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
