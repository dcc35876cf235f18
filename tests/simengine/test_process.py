"""The double as a process: its command line, its start, its end, its faults from outside."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from disaggc.cli.main import main
from disaggc.simengine.connector import OptionError
from disaggc.simengine.options import read_options
from tests.ports import free_port
from tests.simengine.doubles import transfer

EMITTED = [
    "serve", "/models/x", "--served-model-name", "org/x", "x", "--seed", "0", "--dtype", "auto", "--host", "10.0.0.1", "--port", "20000",
    "--tensor-parallel-size", "4", "--pipeline-parallel-size", "1", "--max-num-seqs", "256", "--max-num-batched-tokens", "16384",
    "--block-size", "16", "--gpu-memory-utilization", "0.92", "--enable-prefix-caching", "--enable-chunked-prefill",
    "--shutdown-timeout", "615", "--fail-on-environ-validation", "--enable-prompt-tokens-details",
    "--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_connector_extra_config": {"kv_lease_duration": 600}, "kv_load_failure_policy": "fail", "kv_role": "kv_producer"}',
    "--max-model-len", "8192",
]  # fmt: skip


def test_the_emitted_command_line():
    options = read_options(EMITTED, {"DISAGGC_SIM_TIME_SCALE": "5", "DISAGGC_SIM_ADMIN_PORT": "9999"})
    assert (options.model, options.served, options.host, options.port) == (
        "/models/x",
        ("org/x", "x"),
        "10.0.0.1",
        20000,
    )
    assert (options.tp, options.shutdown_s, options.details, options.scale) == (4, 615, True, 5.0)
    assert options.admin == ("127.0.0.1", 9999)
    assert options.connector.dialect == "nixl"
    assert options.connector.seconds("kv_lease_duration", 30) == 600
    assert options.ignored == (
        "enable-chunked-prefill", "enable-prefix-caching", "fail-on-environ-validation", "gpu-memory-utilization", "seed",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--port", "x"], "--port"),
        (["--max-num-seqs"], "--max-num-seqs wants a value"),
        (["--kv-transfer-config", "{"], "not JSON"),
        (["--kv-transfer-config", '{"kv_connector":"NixlConnector"}'], "kv_role"),
        (
            ["--kv-transfer-config", '{"kv_connector":"P2pNcclConnector","kv_role":"kv_both"}'],
            "P2pNcclConnector",
        ),
        (
            ["--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_rank":0}'],
            "kv_rank",
        ),
        (["--time-scale", "0"], "--time-scale"),
        (["--kv-tokens", "10"], "do not hold one request"),
        (["--timing", "/nowhere"], "timing"),
        (["--time-scal", "10"], "--time-scal .*did you mean --time-scale?"),
        (["--foo", "3"], "unrecognized argument: --foo"),
        (["-seed", "3"], "unrecognized argument: -seed"),
        (["--seed"], "--seed wants a value"),
        (["--start-delay", "soon"], "--start-delay"),
        (["--port", "70000"], "--port is not a port"),
        (["--engine-version", "0.1.0"], "--engine-version 0.1.0"),
        (["more"], "unrecognized argument: more"),
        (["--kv-transfer-config.kv_rank", "0"], "kv_rank"),
        (["--max-model-len.x", "0"], "unrecognized argument"),
    ],
)
def test_what_stops_it(more, words):
    with pytest.raises(OptionError, match=words):
        read_options([*EMITTED, *more], {})


def test_a_variable_of_its_own_is_checked_like_a_flag():
    with pytest.raises(OptionError, match="did you mean DISAGGC_SIM_TIME_SCALE"):
        read_options(EMITTED, {"DISAGGC_SIM_TIMESCALE": "5"})


def test_flags_mean_what_they_mean_to_that_version():
    short = ["serve", "--enforce-eager", "m", "-tp", "2", "-O3", "--seed", "-1", "--disable-prefix-caching"]
    options = read_options([*short, "--kv-transfer-config.kv_connector", "NixlConnector", "--kv-transfer-config.kv_role=kv_both"], {})  # fmt: skip
    assert (options.model, options.tp, options.caching, options.connector.role) == ("m", 2, False, "kv_both")
    assert options.ignored == ("enforce-eager", "optimization-level", "seed")
    assert read_options([*short, "--enable-prefix-caching"], {}).caching
    with pytest.raises(OptionError, match="does not have it"):
        read_options([*short, "--engine-version", "0.21.0", "--monokernel"], {})


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["frob", "tiny"], 64, "`frob` is not a subcommand"),
        ([], 64, "write `serve MODEL`"),
        (["serve", "--port", "8000"], 64, "no model"),
        (["serve", "tiny", "--time-scal", "10"], 64, "--time-scal"),
        (["serve", "tiny", "--timing", "/nowhere"], 1, "cannot be read"),
    ],
)
def test_wrong_usage_is_said_with_its_exit_code(words, code, said, capsys):
    assert main(["sim-engine", *words]) == code
    assert said in capsys.readouterr().err


@contextlib.contextmanager
def process(*flags: str, wait: bool = True, **env: str):
    port, admin = free_port(), free_port()
    command = [sys.executable, "-c", "from disaggc.cli.entry import run; run()"]
    side = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
    full = [*command, "sim-engine", "serve", "tiny", "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m",
            "--max-model-len", "4096", "--admin-port", str(admin), *flags]  # fmt: skip
    with Path(env.pop("SAID", os.devnull)).open("wb") as out:
        child = subprocess.Popen(full, env={**os.environ, **side, **env}, stdout=out, stderr=subprocess.PIPE)
    try:
        if wait:
            answering(port, child)
        yield child, port, admin
    finally:
        child.kill()
        child.wait(10)
        child.stderr.close()


def answering(port: int, child, seconds: float = 20.0, *, path: str = "/health") -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.poll() is None:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2),
        ):
            return
        time.sleep(0.05)
    raise AssertionError("the double does not answer")


def post(port: int, path: str, body, method: str = "POST", timeout: float = 20):
    data = json.dumps(body).encode()
    ask = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(ask, timeout=timeout) as answer:  # noqa: S310 - a test
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read() or b"null")


def stream(port: int, tokens: int) -> socket.socket:
    body = json.dumps({"model": "m", "prompt": "hello", "max_tokens": tokens, "stream": True}).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
    )
    assert b"data:" in connection.recv(100000) + connection.recv(100000)
    return connection


def rest(connection: socket.socket) -> bytes:
    parts = []
    while data := connection.recv(1 << 16):
        parts.append(data)
    return b"".join(parts)


def test_sigterm_while_it_starts_ends_it():
    with process("--start-delay", "300", "--shutdown-timeout", "600", wait=False) as (child, _, admin):
        answering(admin, child, path="/state")
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0


def test_sigterm_without_a_timeout_aborts_what_runs():
    with process() as (child, port, _):
        connection = stream(port, 3000)
        child.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        tail = rest(connection)
        assert time.monotonic() - begun < 2
        assert b'"finish_reason":"abort"' in tail
        assert tail.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert child.wait(10) == 0


def test_sigterm_with_a_timeout_finishes_what_runs_and_refuses_what_comes():
    with process("--shutdown-timeout", "60", "--time-scale", "5") as (child, port, _):
        connection = stream(port, 500)
        child.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200
        assert post(port, "/v1/completions", {"model": "m", "prompt": "x"})[0] == 500
        tail = rest(connection)
        assert b'"finish_reason":"length"' in tail
        assert tail.count(b"data:") > 300
        assert child.wait(10) == 0


def test_a_draining_prefill_stays_until_its_leases_end():
    with process(
        *transfer(role="kv_producer", kv_lease_duration=15), "--shutdown-timeout", "60", "--time-scale", "10"
    ) as (child, port, _):
        params = {"do_remote_decode": True, "do_remote_prefill": False}
        assert (
            post(
                port,
                "/v1/completions",
                {"model": "m", "prompt": "x" * 99, "max_tokens": 1, "kv_transfer_params": params},
            )[0]
            == 200
        )
        child.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert child.wait(10) == 0
        assert 0.8 < time.monotonic() - begun < 5


def test_the_port_refuses_until_the_engine_is_ready():
    with process("--start-delay", "1.5", wait=False) as (child, port, admin):
        answering_admin = time.monotonic() + 20
        while time.monotonic() < answering_admin:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{admin}/state", timeout=2),
            ):
                break
            time.sleep(0.02)
        with pytest.raises(OSError, match=r"refused|reset"):
            socket.create_connection(("127.0.0.1", port), timeout=1)
        answering(port, child)


def test_a_bad_command_line_says_why_and_where_to_look():
    with process("--block-size", "no", wait=False) as (child, _, _):
        assert child.wait(20) == 64
        said = "error: --block-size is not a whole number above 0: no\nsee `disaggc sim-engine --help`\n"
        assert child.stderr.read().decode() == said


@pytest.mark.parametrize(
    ("flags", "lines"),
    [
        ((), ["/health", "/v1/completions", "/v1/completions", "/nowhere?a=1"]),
        (("--disable-access-log-for-endpoints", "/health,/nowhere"), ["/v1/completions"] * 2),
        (("--disable-uvicorn-access-log",), []),
        (("--uvicorn-log-level", "warning"), []),
    ],
)
def test_it_says_where_it_serves_and_what_it_answered(tmp_path, flags, lines):
    said = tmp_path / "out"
    with process(*flags, "--time-scale", "10", SAID=str(said)) as (child, port, admin):
        assert post(port, "/v1/completions", {"model": "m", "prompt": "hello", "max_tokens": 2})[0] == 200
        body = json.dumps({"model": "m", "prompt": "hello", "max_tokens": 2, "stream": True}).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/completions", body, timeout=20) as answer:
            assert b"[DONE]" in answer.read()
        assert post(port, "/nowhere?a=1", {})[0] == 404
        child.terminate()
        child.wait(20)
        (line,) = child.stderr.read().decode().splitlines()
    assert line == (
        f"INFO:     double of vLLM 0.33.0 serves m (tiny) at http://127.0.0.1:{port}, without KV transfer, "
        f"10 times as fast as the clock, faults at http://127.0.0.1:{admin}"
    )
    form = re.compile(r'INFO:     127\.0\.0\.1:\d+ - "(?:GET|POST) (\S+) HTTP/1\.1" (200 OK|404 Not Found)')
    assert [form.fullmatch(one)[1] for one in said.read_text().splitlines()] == lines


def test_faults_over_http():
    with process("--time-scale", "10") as (child, port, admin):

        def ask():
            return post(port, "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 4})

        assert post(admin, "/faults", {"kind": "nonsense"})[0] == 400
        assert post(admin, "/faults", {"kind": "status", "status": 503, "count": 2})[0] == 200
        assert [ask()[0] for _ in range(3)] == [503, 503, 200]
        post(admin, "/faults", {"kind": "error-200"})
        assert ask()[1]["error"]["code"] == 500
        post(admin, "/faults", {"kind": "drop", "when": "first"})
        with pytest.raises(OSError, match=r"(?i)reset|closed|without response"):
            ask()
        post(admin, "/faults", {"kind": "slow", "factor": 50, "count": None})
        begun = time.monotonic()
        ask()
        assert time.monotonic() - begun > 0.08
        post(admin, "/faults", {}, "DELETE")
        post(admin, "/now", {"kind": "refuse"})
        with pytest.raises(OSError, match=r"refused|reset"):
            ask()
        post(admin, "/faults", {}, "DELETE")
        answering(port, child)
        post(admin, "/dead", {})
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
        post(admin, "/faults", {}, "DELETE")
        state = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{admin}/state", timeout=5).read())
        assert state["happened"] == {"status": 2, "error-200": 1, "drop": 1, "slow": 1}
        assert (state["running"], state["leaked_blocks"], state["used_blocks"]) == (0, 0, 0)
        post(admin, "/faults", {"kind": "crash", "when": "working", "delay_s": 0.01})
        with pytest.raises(OSError, match=r"(?i)reset|closed|without response"):
            ask()
        assert child.wait(5) == -signal.SIGKILL
