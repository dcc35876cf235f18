"""`disaggc local` with doubles: up, twice up, status, smoke on what runs, faults that smoke must find, down."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.local.stacks import BASE, PROXY, SECRETS, build, disaggc, status


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("s")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def running(built) -> Path:
    up = disaggc(built, "local", "up", "out", "--timeout", "60", env=SECRETS)
    assert up.returncode == 0, up.stderr
    yield built
    down = disaggc(built, "local", "down", "out", "--now")
    assert down.returncode == 0, down.stderr
    assert {one["state"] for one in status(built)["programs"]} == {"down"}


def test_a_start_says_everything_that_is_missing_first(built):
    up = disaggc(built, "local", "up", "out", env={"HF_TOKEN": "", "CHAT_KEY": ""})
    assert up.returncode == 1
    assert "HF_TOKEN" in up.stderr
    assert "CHAT_KEY" in up.stderr
    assert not (built / "out" / "run" / "supervisor.sock").exists()


def test_without_vllm_the_doubles_are_offered(built, tmp_path):
    real = ("--set", "targets.local={base_port: 12000}")
    none = disaggc(built, "build", "--out", str(tmp_path / "a"), *real)
    assert none.returncode == 1
    assert "`targets.local.engine: sim`" in none.stderr
    lost = (*real, "--set", "services.chat.engine.command=no-such-vllm")
    assert disaggc(built, "build", "--out", str(tmp_path / "b"), "-q", *lost).returncode == 0
    up = disaggc(built, "local", "up", str(tmp_path / "b"), env=SECRETS)
    assert up.returncode == 1
    assert "targets.local.engine=sim" in up.stderr


def test_a_folder_that_build_did_not_write_is_said(tmp_path):
    up = disaggc(tmp_path, "local", "up", ".")
    assert up.returncode == 1
    assert "build" in up.stderr
    assert disaggc(tmp_path, "local", "status", ".").returncode == 1


def test_up_brings_up_and_is_content_the_second_time(running):
    before = status(running)
    assert before["ready"] is True
    again = disaggc(running, "local", "up", "out", env=SECRETS)
    assert again.returncode == 0
    assert "nothing to start" in again.stderr
    assert [one["pid"] for one in status(running)["programs"]] == [one["pid"] for one in before["programs"]]


@pytest.mark.usefixtures("running")
def test_a_key_is_wanted_by_the_proxy():
    body = json.dumps({"model": "meta-llama/Llama-3.1-8B", "prompt": "x", "max_tokens": 1}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PROXY}/v1/completions", body)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10)  # noqa: S310
    assert refused.value.code == 401


def test_the_access_log_has_no_prompt_no_answer_and_no_key(running):
    said = "a prompt that nobody else may read " * 80
    body = json.dumps({"model": "meta-llama/Llama-3.1-8B", "prompt": said, "max_tokens": 3}).encode()
    headers = {"Authorization": f"Bearer {SECRETS['CHAT_KEY']}", "x-request-id": "look-for-me"}
    request = urllib.request.Request(f"http://127.0.0.1:{PROXY}/v1/completions", body, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        text = json.loads(answer.read())["choices"][0]["text"].strip()
    log, deadline = running / "out" / "run" / "chat-proxy-0.log", time.monotonic() + 10
    while "look-for-me" not in log.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    lines = [line for line in log.read_text().splitlines() if "look-for-me" in line]
    assert len(lines) == 1
    told = json.loads(lines[0])
    assert (told["path"], told["status"], told["output_tokens"]) == ("/v1/completions", 200, 3)
    assert (told["prefill"], told["decode"]) == ("chat/prefill/0", "chat/decode/0")
    for secret in ("nobody else", text, SECRETS["CHAT_KEY"]):
        assert secret not in log.read_text()


def smoked(folder: Path, *words: str) -> tuple[int, dict[str, set[str]]]:
    done = disaggc(folder, "smoke", "plan.json", "--format", "json", *words, env=SECRETS)
    assert done.stdout, done.stderr
    found: dict[str, set[str]] = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["state"], set()).add(one["check"])
    return done.returncode, found


def test_smoke_finds_a_right_stack_right(running):
    code, found = smoked(running, "--routing", "out/chat/routing.json")
    assert (code, found.get("fail")) == (0, None)
    everything = {
        "reachable",
        "kv-blocks",
        "kv-moves",
        "bandwidth",
        "parity",
        "cancel",
        "remote-prefill",
        "hang-up",
        "kv-losses",
    }
    few = {"bandwidth"}
    """A transfer of one test prompt: set-up is most of it."""
    assert (found["pass"], found["skip"]) == (everything - few, few)


def judged(
    folder: Path, *words: str, key: str = SECRETS["CHAT_KEY"]
) -> tuple[dict[str, dict[str, str]], str]:
    """Sentences by state and check, and what was said on the way."""
    done = disaggc(folder, "smoke", "plan.json", "--format", "json", *words, env={**SECRETS, "CHAT_KEY": key})
    assert done.returncode == 6
    found: dict[str, dict[str, str]] = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["state"], {})[f"{one['check']} {one['subject']}"] = one["sentence"]
    return found, done.stderr


def test_smoke_judges_the_rest_without_an_engine_that_does_not_answer(running):
    found, said = judged(running, "--endpoint", "chat/prefill/0=http://127.0.0.1:1")
    assert list(found["fail"]) == ["reachable chat/prefill/0"], found
    assert "cannot be reached" in found["fail"]["reachable chat/prefill/0"]
    wanted = {"kv-blocks chat/decode/0", "remote-prefill chat/proxy", "hang-up chat/proxy"}
    assert wanted <= set(found["pass"]), "the proxy knows where the engine really is"
    assert set(found["skip"]) == {"kv-blocks chat/prefill/0", "kv-moves chat/prefill/0 -> chat/decode/0"}
    assert "chat: asking 2 engines and the proxy" in said


def test_smoke_says_which_key_it_lacks_once(running):
    found, _ = judged(running, key="")
    assert list(found["fail"]) == ["reachable chat/proxy"]
    assert "the variable CHAT_KEY (export it) holds none" in found["fail"]["reachable chat/proxy"]
    assert {"remote-prefill chat/proxy", "hang-up chat/proxy"} <= set(found["skip"])
    assert "kv-moves chat/prefill/0 -> chat/decode/0" in found["pass"]
    assert "is not its key" in judged(running, key="wrong")[0]["fail"]["reachable chat/proxy"]


def test_status_tells_where_faults_are(running):
    found = {one["address"]: one["faults"] for one in status(running)["programs"]}
    assert found["chat/proxy/0"] is None
    assert found["chat/prefill/0"] == f"http://127.0.0.1:{BASE + 59}"
    with urllib.request.urlopen(f"{found['chat/decode/0']}/state", timeout=10) as answer:  # noqa: S310
        assert json.load(answer)["leases"] == 0
    shown = disaggc(running, "local", "status", "out").stdout
    assert f"faults http://127.0.0.1:{BASE + 59}" in shown
    said = (running / "out/run/chat-prefill-0.log").read_text()
    assert f"faults at http://127.0.0.1:{BASE + 59}" in said
    assert "as kv_producer of nixl, 20 times as fast as the clock" in said
    assert '"GET /health HTTP/1.1" 200 OK' in said


def fault(port: int, body: dict[str, object] | None) -> None:
    url = f"http://127.0.0.1:{port}/faults"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method="DELETE" if body is None else "POST")
    urllib.request.urlopen(request, timeout=10).read()  # noqa: S310


@pytest.mark.parametrize(
    ("kind", "when", "wrong"),
    [
        ("null-params", "arrival", {"kv-moves"}),
        ("other-blocks", "arrival", {"parity"}),
        ("status", "arrival", {"kv-moves"}),
        ("expire-leases", "after", {"kv-losses"}),
        ("reuse-leases", "after", {"kv-losses", "parity"}),
    ],
)
def test_smoke_says_what_is_wrong(running, kind, when, wrong):
    prefill_faults = BASE + 59
    fault(prefill_faults, {"kind": kind, "when": when, "leg": "prefill", "count": None})
    try:
        code, found = smoked(running)
    finally:
        fault(prefill_faults, None)
    assert code == 6
    assert found["fail"] >= wrong
    if kind.endswith("leases"):
        assert "cancel" in found["skip"], "no KV is held that could be freed"


def test_smoke_says_where_it_does_not_know(running):
    done = disaggc(
        running, "smoke", "plan.json", "--endpoint", "chat/prefill/7=http://127.0.0.1:1", env=SECRETS
    )
    assert done.returncode == 1
    assert "chat/prefill/7" in done.stderr


def test_up_takes_over_what_was_built_anew(running):
    before = {one["name"]: one["pid"] for one in status(running)["programs"]}
    more = ("--set", "services.chat.engine.decode.settings.max-logprobs=7")
    assert disaggc(running, "build", "--out", "out", "-q", *more).returncode == 0
    up = disaggc(running, "local", "up", "out", "--timeout", "60", env=SECRETS)
    assert up.returncode == 0, up.stderr
    after = {one["name"]: one["pid"] for one in status(running)["programs"]}
    assert {name for name in before if before[name] != after[name]} == {"chat-decode-0"}
