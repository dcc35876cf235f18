"""How a stack ends: with the command in the foreground, in order, at once while it drains; and how status tells trouble."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from disaggc.hosts import processes
from disaggc.hosts.processes import alive, children
from disaggc.hosts.readiness import taken
from tests.local.stacks import PROXY, SECRETS, START, build, disaggc, status

LIMIT_S = 60.0
"""A stack of doubles without requests ends in seconds; what waits for itself waits ten minutes."""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("e")
    build(folder, more=("--set", "targets.local.time_scale=1"))
    return folder


def started(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    # A shell that starts the tests in the background has them ignore Ctrl-C, and their children too.
    return subprocess.Popen(
        [sys.executable, "-c", f"import signal; signal.signal(2, signal.default_int_handler); {START}", *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, **SECRETS, **(env or {})},
    )  # fmt: skip


def said(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return
    pytest.fail(f"it ended with {process.wait()} and never said `{words}`")


def running_in(folder: Path) -> list[str]:
    """Processes that the stack left behind, also those that do not listen yet. Only Linux tells where one runs."""
    places = Path("/proc").glob("[0-9]*/cwd") if sys.platform == "linux" else ()
    found = []
    for place in places:
        with suppress(OSError):
            if place.readlink().is_relative_to(folder):
                found.append(place.parent.name)
    return found


def everything_is_down(folder: Path) -> bool:
    assert running_in(folder) == []
    stack = json.loads((folder / "out" / "stack.json").read_text())
    ports = [port for program in stack["programs"] for port in program["ports"]]
    return {one["state"] for one in status(folder)["programs"]} == {"down"} and not any(map(taken, ports))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_runs_in_the_foreground_ends_with_the_command(built, number):
    process = started(built, "local", "up", "out", "--foreground")
    said(process, "up; Ctrl-C")
    process.send_signal(number)
    _, rest = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, rest.splitlines()[-1]) == (0, "down"), rest
    assert everything_is_down(built)


@pytest.mark.parametrize("moment", ["at the first file", "when it answers"])
def test_ctrl_c_before_it_is_up_leaves_nothing_running(built, moment):
    log, socket = (built / "out" / "run" / name for name in ("supervisord.log", "supervisor.sock"))
    log.unlink(missing_ok=True)
    socket.unlink(missing_ok=True)
    process = started(built, "local", "up", "out", "--foreground", env={"DISAGGC_SIM_START_DELAY": "300"})
    deadline = time.monotonic() + LIMIT_S
    while not (log if moment == "at the first file" else socket).exists():
        assert time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert everything_is_down(built)


def test_without_foreground_ctrl_c_says_that_it_goes_on(built):
    process = started(built, "local", "up", "out", env={"DISAGGC_SIM_START_DELAY": "300"})
    said(process, "started ")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "local down out" in rest
    assert disaggc(built, "local", "down", "out").returncode == 0
    assert everything_is_down(built)


@pytest.fixture
def running(built) -> Path:
    assert disaggc(built, "local", "up", "out", env=SECRETS).returncode == 0
    assert len(running_in(built)) >= 4 or sys.platform != "linux", "supervisord, two engines, a proxy"
    yield built
    assert disaggc(built, "local", "down", "out", "--now").returncode == 0


def test_down_names_what_it_waits_for_and_now_cuts_it_off(running):
    body = {"model": "meta-llama/Llama-3.1-8B", "prompt": "x", "max_tokens": 3900, "stream": True}
    headers = {"Authorization": f"Bearer {SECRETS['CHAT_KEY']}"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{PROXY}/v1/completions", json.dumps(body).encode(), headers
    )
    with urllib.request.urlopen(request, timeout=LIMIT_S) as stream:  # noqa: S310
        assert stream.readline()
        patient = started(running, "local", "down", "out")
        said(patient, "s: chat-proxy-0")
        states = {one["name"]: one["state"] for one in status(running)["programs"]}
        assert states["chat-decode-0"] == "running", "engines stop after those who ask them"
        assert disaggc(running, "local", "down", "out", "--now").returncode == 0
        assert patient.wait(LIMIT_S) == 0
    assert everything_is_down(running)


def test_status_tells_a_hung_engine_and_one_that_ended(running):
    pids = {one["name"]: one["pid"] for one in status(running)["programs"]}
    os.kill(pids["chat-decode-0"], signal.SIGSTOP)
    os.kill(pids["chat-prefill-0"], signal.SIGKILL)
    try:
        deadline = time.monotonic() + LIMIT_S
        found = {}
        while not found or found["chat-prefill-0"]["pid"] in (None, pids["chat-prefill-0"]):
            assert time.monotonic() < deadline, "supervisord starts it again"
            found = {one["name"]: one for one in status(running)["programs"]}
        shown = disaggc(running, "local", "status", "out")
    finally:
        os.kill(pids["chat-decode-0"], signal.SIGCONT)
    assert shown.returncode == 6
    assert (found["chat-decode-0"]["answer"], found["chat-decode-0"]["ready"]) == ("silent", False)
    assert "silent: no answer" in shown.stdout
    assert found["chat-prefill-0"]["ends"] == 1
    assert "ended 1 x" in shown.stdout


def test_a_start_that_is_taken_back_takes_its_programs_along(monkeypatch):
    monkeypatch.setattr(processes, "TAKE_BACK_S", 0.2)
    code = (
        "import signal, subprocess, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "p = subprocess.Popen(['sleep', '600'], start_new_session=True); print(p.pid, flush=True); time.sleep(600)"
    )
    stubborn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert stubborn.stdout is not None
    program = int(stubborn.stdout.readline())
    assert alive(program)
    processes.take_back(stubborn)
    stubborn.stdout.close()
    deadline = time.monotonic() + LIMIT_S
    while alive(program):
        assert time.monotonic() < deadline, "it runs on without its supervisor"
        time.sleep(0.01)


def test_a_process_that_ended_is_not_alive_whoever_should_have_noticed():
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + LIMIT_S
    while alive(child.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    code = "import subprocess, sys, time; p = subprocess.Popen(['true']); print(p.pid, flush=True); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        assert children(parent.pid) == (orphan,)
        while alive(orphan) and sys.platform == "linux":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        parent.kill()
        parent.communicate()
    assert alive(os.getpid())
