"""What a killed run of the fault matrix leaves is removed by the next one, and nothing of a run that lives."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.fault_left import SPACES, clear_left, network_of, processes_of
from tests.bench.fault_network import unavailable
from tests.ports import RUN

MAKES = """
import subprocess, sys, tempfile, time
from tests.bench.fault_left import folder_of
from tests.bench.fault_network import Network, unavailable
from tests.ports import marked, own_block
folder = tempfile.mkdtemp(prefix=folder_of(own_block()))
if not unavailable():
    network = Network(3)
    network.build(("p0", "d0"))
sleeper = subprocess.Popen(["sleep", "300"], env=marked())
print(own_block(), sleeper.pid, folder, flush=True)
time.sleep(300)
"""


@contextlib.contextmanager
def run() -> Iterator[tuple[subprocess.Popen[str], int, int, Path]]:
    """A run, its block, a process and a folder of its own."""
    process = subprocess.Popen([sys.executable, "-c", MAKES], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        block, sleeper, folder = process.stdout.readline().split()
        yield process, int(block), int(sleeper), Path(folder)
    finally:
        process.kill()
        process.wait(10)
        clear_left()


def lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def spaces(block: int) -> int:
    return len(list(SPACES.glob(f"{network_of(block)}*")))


def links(block: int) -> int:
    return len(list(Path("/sys/class/net").glob(f"{network_of(block)}*")))


def test_what_a_killed_run_left_goes_and_what_lives_stays():
    if missing := unavailable():
        print(f"WITHOUT NETWORKS: {missing}", file=sys.stderr)
    made = 0 if missing else 2
    with run() as dead, run() as living:
        for _, block, sleeper, folder in (dead, living):
            assert (spaces(block), links(block)) == (made, made + made // 2)
            assert lives(sleeper)
            assert folder.is_dir()
        dead[0].kill()
        dead[0].wait(10)
        wanted = "1 processes, 2 network namespaces, 3 links, 1 folders" if made else "1 processes, 1 folders"
        assert wanted in clear_left()
        _, block, sleeper, folder = dead
        assert (spaces(block), links(block), lives(sleeper), folder.exists()) == (0, 0, False, False)
        _, block, sleeper, folder = living
        assert (spaces(block), links(block), lives(sleeper), folder.exists()) == (
            made,
            made + made // 2,
            True,
            True,
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_end_ends_soon_and_leaves_nothing(number):
    rows = "kill" if unavailable() else "cable"
    words = ["--interpreted", "--dialect", "nixl", "--rows", rows]  # nothing is to be built first
    matrix = [sys.executable, "-m", "tests.bench.fault_matrix", *words]
    process = subprocess.Popen(matrix, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        name = started(process, 8)
        process.send_signal(number)
        _, said = process.communicate(timeout=20)
        assert process.returncode == 128 + number, said.decode()
        assert list(processes_of(name)) == []
        block = int(name.rpartition("-")[2])
        assert (spaces(block), links(block)) == (0, 0)
    finally:
        process.kill()
        process.wait(10)


def started(process: subprocess.Popen[bytes], least: int) -> str:
    """The name of a run that has so many processes."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None
        children = Path(f"/proc/{process.pid}/task").glob("*/children")
        for child in [pid for path in children for pid in path.read_text().split()]:
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{child}/environ").read_bytes().decode().split("\0")
                (name,) = [word.removeprefix(f"{RUN}=") for word in words if word.startswith(f"{RUN}=")] or [
                    ""
                ]
                if name and len(set(processes_of(name)) - {os.getpid()}) >= least:
                    return name
        time.sleep(0.1)
    raise AssertionError("the matrix starts nothing")
