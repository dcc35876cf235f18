"""A bench says what it is doing and never hangs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import pytest

from tests.bench.stages import stage


def test_a_stage_says_its_begin_and_its_end(capsys):
    with stage("warm up", 5):
        pass
    begun, ended = capsys.readouterr().err.splitlines()
    assert begun.endswith("warm up (at most 5 s)")
    assert "warm up: 0.0 s" in ended


def test_a_stage_that_waits_for_a_process_that_says_nothing_is_given_up():
    quiet = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert quiet.stdout is not None
        with (
            pytest.raises(SystemExit, match=r"given up: `listen` was not over after 0\.2 s"),
            stage("listen", 0.2),
        ):
            quiet.stdout.readline()
    finally:
        quiet.kill()
        quiet.wait(10)


def test_a_stage_in_an_event_loop_is_given_up_and_the_loop_is_closed():
    ended = []

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    with pytest.raises(SystemExit, match="given up"), stage("load", 0.2):
        asyncio.run(forever())
    assert ended


def test_after_a_stage_no_alarm_is_left():
    before = signal.getsignal(signal.SIGALRM)
    with stage("short", 0.2):
        pass
    time.sleep(0.3)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
