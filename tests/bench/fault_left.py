"""What a killed run of the fault matrix left: processes, network namespaces, cables, folders. `python -m tests.bench.fault_left`.

Every run has a block of ports (tests.ports), and all that it makes is named after it. A block that nobody holds has no run:
what still has its name is nobody's. Marks are tried one by one, and held while something is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.ports import BLOCKS, RUN, mark, name_of

SPACES, LINKS = Path("/run/netns"), Path("/sys/class/net")
ENDS_S = 10.0
"""A killed process is gone by then."""


def network_of(block: int) -> str:
    """What the names of a run's networks begin with; with it and the number of a stack, 15 characters hold an engine's."""
    return f"disaggc{block}-"


def folder_of(block: int) -> str:
    """What the names of a run's folders begin with."""
    return f"{name_of(block)}-"


def clear_left() -> list[str]:
    """What runs that are no more have left goes; one line for each of them."""
    said = []
    for block in range(BLOCKS):
        held = mark(block)
        if held is not None:
            with held:
                said += list(_clear(block))
    return said


def _clear(block: int) -> Iterator[str]:
    killed: set[int] = set()
    end = time.monotonic() + ENDS_S
    while (there := set(processes_of(name_of(block)))) and time.monotonic() < end:
        for pid in there:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= there
        time.sleep(0.02)
    links, spaces = _named(LINKS, network_of(block)), _named(SPACES, network_of(block))
    for words in [*(("link", "del", name) for name in links), *(("netns", "del", name) for name in spaces)]:
        subprocess.run(
            ["ip", *words], capture_output=True, check=False
        )  # one end of a cable goes with the other
    folders = _named(Path(tempfile.gettempdir()), folder_of(block))
    for name in folders:
        shutil.rmtree(Path(tempfile.gettempdir(), name), ignore_errors=True)
    counts = ((killed, "processes"), (spaces, "network namespaces"), (links, "links"), (folders, "folders"))
    if any(found for found, _ in counts):
        yield ", ".join(f"{len(found)} {what}" for found, what in counts if found)


def processes_of(run: str) -> Iterator[int]:
    """Those that a run started; a process that has ended shows no environment."""
    wanted = f"{RUN}={run}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _named(folder: Path, begin: str) -> list[str]:
    return [path.name for path in folder.glob(f"{begin}*")] if folder.is_dir() else []


def end_by_signals() -> None:
    """From now on SIGTERM, SIGINT and SIGHUP end this process and all that it started."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    """The process becomes the one that clears up: its threads, which start engines anew, are gone at once."""
    os.execv(sys.executable, [sys.executable, "-m", "tests.bench.fault_left", "--code", str(128 + number)])  # noqa: S606 - nothing is to be quoted


def main() -> int:
    """Clear up; the number after `--code` is the exit code."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # this is what they ask for
    for line in clear_left():
        print(f"removed {line}", file=sys.stderr, flush=True)
    return int(sys.argv[2]) if sys.argv[1:2] == ["--code"] else 0


if __name__ == "__main__":
    sys.exit(main())
