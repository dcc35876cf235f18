"""Stacks that start side by side never get one port twice, and no connection takes one that is to be listened on again."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from tests.conftest import ROOT
from tests.ports import BLOCKS, FIRST, SIZE, free_port, ports
from tests.proxy.engine import Engine
from tests.proxy.harness import run
from tests.simengine.doubles import Double

CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
GIVEN_BACK = re.compile(r"with [^\n]*create_server\(\([^)]*, 0\)|\.bind\(\([^)]*, 0\)\)")
"""A port that the system chose and that is closed again before its user listens on it."""


def test_threads_that_ask_at_once_share_a_block_and_no_port():
    ports.cache_clear()
    start = Barrier(8)

    def take(_: int) -> list[int]:
        start.wait(10)
        return [free_port() for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        taken = [port for found in pool.map(take, range(8)) for port in found]
    assert len(set(taken)) == 80
    assert max(taken) - min(taken) < SIZE


def test_another_process_takes_from_another_block():
    ours = free_port()
    told = subprocess.run(
        [sys.executable, "-c", "from tests.ports import free_port; print(free_port())"],
        capture_output=True,
        text=True,
        check=True,
    )
    block = [(port - FIRST) // SIZE for port in (ours, int(told.stdout))]
    assert block[0] != block[1]


def test_a_port_comes_round_again_only_after_all_others():
    taken = [ports().take() for _ in range(SIZE)]
    assert len(set(taken)) >= SIZE - 20  # all but the mark and those that others listen on
    assert free_port() in taken


def test_no_engine_has_a_port_that_a_connection_could_take_while_it_is_down():
    first = int(CONNECTIONS.read_text().split()[0]) if CONNECTIONS.exists() else 32_768
    assert first >= FIRST + BLOCKS * SIZE

    async def go():
        scripted = await Engine("p").start()
        await scripted.stop()
        double = Double()
        return scripted.port, double.engine.port

    assert all(port < first for port in run(go()))


def test_no_test_gives_a_port_back_before_it_is_used():
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    assert [str(path) for path in files if GIVEN_BACK.search(path.read_text(encoding="utf-8"))] == []
