"""What `build` writes anew reaches the proxies that run, across drains and restarts, and `local` says what is in effect."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.local.stacks import PROXY, SECRETS, START, build, disaggc, status

POLICY = "services.chat.proxy.policy"


def routing_file(folder: Path) -> Path:
    return folder / "out" / "chat" / "routing.json"


def table(folder: Path) -> dict[str, object]:
    return json.loads(routing_file(folder).read_text())


def ask(
    folder: Path, path: str, method: str = "GET", body: dict[str, object] | None = None
) -> dict[str, object]:
    port = table(folder)["listen"]["admin_port"]
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=10) as said:  # noqa: S310
        return json.loads(said.read())


def administer(folder: Path, step: int = 1) -> int:
    """Put a changed table in effect, as a drain does where there is more than one engine of a role."""
    current = ask(folder, "/admin/routing")
    put = {**current, "generation": current["generation"] + step, "retries": 5}
    return ask(folder, "/admin/routing", "PUT", put)["generation"]


def rebuild(folder: Path, *changes: str) -> None:
    sets = [word for change in changes for word in ("--set", change)]
    done = disaggc(folder, "build", "--out", "out", "-q", *sets)
    assert done.returncode == 0, done.stderr


def up(folder: Path, *more: str) -> tuple[int, str, str]:
    done = disaggc(folder, "local", "up", "out", "--timeout", "60", *more, env=SECRETS)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def running(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("t")
    build(folder)
    code, said, errors = up(folder)
    assert code == 0, errors
    assert "chat: routing generation 1 in effect" in said
    yield folder
    down = disaggc(folder, "local", "down", "out", "--now")
    assert down.returncode == 0, down.stderr


def test_a_new_build_reaches_the_proxy_and_a_same_one_changes_nothing(running):
    rebuild(running)
    assert table(running)["generation"] == 1
    assert administer(running) == 2
    rebuild(running)
    code, said, _ = up(running)
    assert code == 0
    assert "routing generation 2 in effect, made by administration from generation 1" in said
    rebuild(running, f"{POLICY}=round-robin")
    assert table(running)["generation"] == 3, "above what administration came to"
    code, said, _ = up(running)
    assert (code, "chat: routing generation 3 in effect" in said) == (0, True)
    assert ask(running, "/admin/routing")["policy"] == "round-robin"
    assert status(running)["routing"] == [
        {"service": "chat", "file_generation": 3, "generation": 3, "in_effect": True, "refusal": None}
    ]


def test_a_build_while_everything_is_down_beats_what_administration_said_before(running):
    assert administer(running, 11) == 12
    assert disaggc(running, "local", "down", "out").returncode == 0
    live = routing_file(running).with_name("routing.json.live")
    assert live.exists()
    rebuild(running, f"{POLICY}=round-robin")
    routing = table(running)
    assert routing["generation"] == 13
    # As from a build into another folder, which knows nothing of administration.
    routing_file(running).write_text(json.dumps({**routing, "generation": 1}))
    code, said, _ = up(running)
    assert (code, "chat: routing generation 1 in effect" in said) == (0, True)
    assert ask(running, "/admin/routing")["policy"] == "round-robin"
    assert not live.exists()


def test_up_fails_with_the_reason_where_a_file_is_not_taken(running):
    routing_file(running).write_text(json.dumps({**table(running), "policy": "round-robin"}))
    code, said, errors = up(running)
    assert code == 1
    assert "error: chat: the routing file is not in effect: generation 1 is not above 1" in errors
    assert "2 of 3 serve" not in said
    assert disaggc(running, "local", "status", "out").returncode == 6
    (found,) = status(running)["routing"]
    assert (found["in_effect"], found["generation"]) == (False, 1)
    rebuild(running, "services.chat.proxy.api_key={env: NOT_SET_ANYWHERE}")
    code, _, errors = up(running)
    assert code == 1
    assert "the key in `NOT_SET_ANYWHERE` is empty" in errors
    rebuild(running)
    assert up(running)[0] == 0


def test_a_build_with_other_latencies_leaves_the_proxy_running(running):
    def pids() -> dict[str, int]:
        return {one["name"]: one["pid"] for one in status(running)["programs"]}

    before, drained = pids(), table(running)["timeouts"]["drain_s"]
    rebuild(running, "services.chat.workload.w.output_tokens=2900")
    assert table(running)["timeouts"]["drain_s"] != drained, "what would be another wait for the proxy's end"
    code, said, errors = up(running)
    assert code == 0, errors
    assert "chat: routing generation 2 in effect" in said
    after = pids()
    assert after["chat-proxy-0"] == before["chat-proxy-0"]
    assert after["chat-decode-0"] != before["chat-decode-0"], "it finishes longer answers now"


def test_other_ports_restart_the_proxy(running):
    port = PROXY + 200
    rebuild(running, f"services.chat.proxy.port={port}")
    code, said, errors = up(running)
    assert code == 0, errors
    assert "started chat-proxy-0" in errors
    assert f"http://127.0.0.1:{port}" in said
    assert ask(running, "/admin/routing")["listen"]["port"] == port


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_up_says_soon_that_a_drained_role_serves_nobody_and_how_to_take_it_back(running, role):
    ask(running, f"/admin/drain?replica=chat/{role}/0", "POST")
    code, _, errors = up(running)
    assert code == 1
    assert f"error: chat: all {role} replicas are drained (chat/{role}/0), so nothing is served" in errors
    assert "not ready within" not in errors
    shown = disaggc(running, "local", "status", "out")
    assert (shown.returncode, f"all {role} replicas are drained" in shown.stdout) == (6, True)
    said = re.search(r"`curl -X POST '(\S+)'`", errors)
    assert said is not None
    undrain = urllib.request.Request(said[1], method="POST")  # noqa: S310
    urllib.request.urlopen(undrain, timeout=10).read()  # noqa: S310
    assert up(running)[0] == 0


def test_a_drain_outlives_a_build_and_is_shown(running):
    ask(running, "/admin/drain?replica=chat/decode/0", "POST")
    rebuild(running, f"{POLICY}=round-robin")
    code, _, errors = up(running)
    assert code == 1
    assert "all decode replicas are drained (chat/decode/0)" in errors
    assert ask(running, "/admin/routing")["policy"] == "round-robin"
    shown = disaggc(running, "local", "status", "out").stdout
    assert "routing generation 3 in effect; all decode replicas are drained" in shown
    ask(running, "/admin/undrain?replica=chat/decode/0", "POST")
    assert up(running)[0] == 0


def test_in_the_foreground_a_drained_role_is_said_and_can_be_taken_back(running):
    ask(running, "/admin/drain?replica=chat/decode/0", "POST")
    words = [sys.executable, "-c", START, "local", "up", "out", "--foreground", "--timeout", "60"]
    process = subprocess.Popen(
        words, cwd=running, stderr=subprocess.PIPE, env={**os.environ, **SECRETS}, text=True
    )
    try:
        assert process.stderr is not None
        while "all decode replicas are drained" not in (line := process.stderr.readline()):
            assert line, "it ended"
        ask(running, "/admin/undrain?replica=chat/decode/0", "POST")
        while "up; Ctrl-C stops everything" not in (line := process.stderr.readline()):
            assert line, "it ended"
            assert "drained" not in line
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_folder_that_is_not_there_is_no_stack_that_is_down(tmp_path):
    for command in ("up", "status", "down"):
        done = disaggc(tmp_path, "local", command, "nosuch")
        assert done.returncode == 1, command
        assert "nosuch/stack.json" in done.stderr
