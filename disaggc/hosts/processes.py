"""Processes of this machine by id: whether one runs, and ending them. Knows no supervisor."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

TAKE_BACK_S = 5.0
"""Longest wait for a start that is taken back: nobody is served yet, so programs have nothing to finish."""


def kill_groups(pids: Iterable[int]) -> None:
    """End programs at once, each with all its children: supervisord makes every program the head of a group."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    """Whether a process of that id still runs. One that ended and waits for its parent to notice does not."""
    with suppress(ChildProcessError):
        # Ours: nobody else can notice. Once noticed it is no child any more, so the rest answers next time.
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # Ended where its parent never asks, e.g. the first process of a container. Only Linux tells without a tool.
    return _stat(pid)[:1] != ["Z"]


def take_back(child: subprocess.Popen[bytes]) -> None:
    """End a supervisor that is starting. SIGTERM lets it stop its programs; impatience or time cuts that short."""
    child.terminate()
    try:
        child.wait(TAKE_BACK_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        programs = children(child.pid)
        child.kill()
        kill_groups(programs)
        child.wait()


def children(parent: int) -> tuple[int, ...]:
    """Ids of the processes that it started and that run still."""
    if Path("/proc/self/stat").exists():
        pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
        return tuple(pid for pid in pids if _stat(pid)[1:2] == [str(parent)])
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False)  # noqa: S607
    pairs = (line.split() for line in listed.stdout.splitlines())
    return tuple(int(pair[0]) for pair in pairs if len(pair) == 2 and pair[1] == str(parent))


def _stat(pid: int) -> list[str]:
    """State, parent and more of a process, empty where Linux does not say."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # `pid (name) state parent ...`; the name may hold anything.
    return text.rpartition(")")[2].split()
