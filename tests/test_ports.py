"""Stacks that start side by side never get one port twice."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from tests.ports import FIRST, SIZE, free_port, ports


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
