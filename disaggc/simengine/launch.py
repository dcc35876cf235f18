"""Starting a double from its command line."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Sequence

import uvloop

from disaggc.simengine.connector import OptionError
from disaggc.simengine.engine import Engine
from disaggc.simengine.journal import AccessLog, start_line
from disaggc.simengine.options import Options, UnreadableError, read_options


class LaunchError(Exception):
    """The double cannot start; the message says why. usage: the command line is to blame, nothing else."""

    def __init__(self, message: str, *, usage: bool = False) -> None:
        super().__init__(message)
        self.usage = usage


def launch(arguments: Sequence[str]) -> None:
    """Serve until SIGTERM; LaunchError when that cannot start."""
    try:
        options = read_options(arguments, os.environ)
    except OptionError as exc:
        raise LaunchError(str(exc), usage=not isinstance(exc, UnreadableError)) from None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_live(options))
    except OptionError as exc:
        raise LaunchError(str(exc), usage=True) from None
    except (OSError, OverflowError) as exc:
        raise LaunchError(f"a port cannot be opened: {exc}") from None


async def _live(options: Options) -> None:
    if options.headless:
        # The later nodes of a replica serve nothing; one process answers for all of it.
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        return
    engine = Engine(options, AccessLog(options.unlogged) if options.access_log else None)

    def serving() -> None:
        sys.stderr.write(start_line(options, port=engine.port, admin_port=engine.admin_port) + "\n")
        sys.stderr.flush()

    await engine.run(serving)
