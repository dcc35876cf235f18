"""The script that units run before an engine starts and until it answers, run by the shell of this machine."""

from __future__ import annotations

import http.server
import mmap
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from disaggc.spec.model import SystemdTarget
from tests.emit.emitted import files
from tests.emit.plans import five_nodes

SMALL = "1024"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("check") / "engine-check.sh"
    path.write_text(files(five_nodes(), SystemdTarget())["gpu-01/etc/disaggc/engine-check.sh"].text)
    return path


def run(script: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(script), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={"PATH": os.environ["PATH"], "ENGINE_CHECK_SHM": str(script.parent), **env},
    )


def test_nothing_needed_nothing_wrong(script):
    done = run(script, "preflight", "cpu", "", "no-rdma", SMALL)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_secret_that_is_not_set_stops_the_start(script):
    words = ("preflight", "cpu", "", "no-rdma", SMALL, "HF_TOKEN")
    assert run(script, *words, HF_TOKEN="given").returncode == 0  # noqa: S106 - a stand-in
    done = run(script, *words)
    assert done.returncode == 1
    assert "HF_TOKEN is not set" in done.stderr


def test_too_little_shared_memory_stops_the_start(script):
    done = run(script, "preflight", "cpu", "", "no-rdma", str(2**60))
    assert done.returncode == 1
    assert "KiB free" in done.stderr


def test_what_a_killed_engine_left_is_removed_and_nothing_else(script, tmp_path):
    old = time.time() - 3600
    for name in ("psm_old", "psm_new", "psm_mapped", "not-ours"):
        (tmp_path / name).write_bytes(b"x" * 4096)
        if name != "psm_new":
            os.utime(tmp_path / name, (old, old))
    with (tmp_path / "psm_mapped").open("r+b") as file, mmap.mmap(file.fileno(), 0):
        done = run(script, "preflight", "cpu", "", "no-rdma", SMALL, ENGINE_CHECK_SHM=str(tmp_path))
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["not-ours", "psm_mapped", "psm_new"]


@pytest.mark.parametrize(("vendor", "device"), [("amd", "/dev/kfd"), ("nvidia", "/dev/nvidiactl")])
def test_a_missing_device_stops_the_start(script, vendor, device):
    if Path(device).exists():
        pytest.skip(f"{device} is there")
    done = run(script, "preflight", vendor, "0,1", "no-rdma", SMALL)
    assert done.returncode == 1
    assert f"{device} is missing" in done.stderr


def test_limited_locked_memory_stops_an_engine_with_rdma(script):
    if Path("/dev/infiniband").exists():
        pytest.skip("RDMA cards are there")
    done = run(script, "preflight", "cpu", "", "rdma", SMALL)
    assert done.returncode == 1
    assert "/dev/infiniband" in done.stderr


def test_ready_when_it_answers_and_not_before(script):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 503)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert run(script, "ready", f"{url}/health", "4").returncode == 0
        late = run(script, "ready", f"{url}/starting", "2")
        server.shutdown()
    assert late.returncode == 1
    assert "no answer" in late.stderr


def test_an_engine_that_ended_is_not_waited_for(script):
    ended = subprocess.run(
        ["/bin/sh", "-c", "echo $$"], capture_output=True, text=True, check=True
    ).stdout.strip()
    done = run(script, "ready", "http://127.0.0.1:1/health", "60", MAINPID=ended)
    assert done.returncode == 1
    assert "ended before it answered" in done.stderr


def test_wrong_use_says_so(script):
    assert "usage" in run(script).stderr
