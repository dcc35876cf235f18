"""Ten thousand streams through the real proxy to engine doubles: `python -m tests.bench.streams [--streams N] [--json]`.

Two clients (C), three doubles and the workers of the proxy, all processes of their own. Every stream must be open at
the same moment, pass through both legs, and end whole with its `[DONE]`; nothing may be left on the doubles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from disaggc.simengine.timing import DecodeTimes, KvTimes, PrefillTimes, Timing
from tests import compiled
from tests.bench.fault_stack import PROGRAM, call
from tests.bench.proxy import children, cpu_s, descriptors, rss_bytes, running
from tests.bench.proxy_streams import END_S, OPEN_S, client, outcome, said
from tests.bench.stages import stage
from tests.ports import free_port

TOKENS, STEP_S, INTERVAL = 240, 0.4, 16
"""Every stream lasts 96 s, longer than opening all of them takes, and says something every 6.4 s."""
EVENTS = 2 + (TOKENS - 2) // INTERVAL
"""The first word alone, then every INTERVAL words, the rest at the end."""
TIMES = Timing(
    decode=DecodeTimes(batches=(1, 2), fixed_s=(STEP_S, STEP_S), token_s=0.0),
    prefill=PrefillTimes(fixed_s=0.002, token_s=0.0, square_s=0.0),
    kv=KvTimes(setup_s=0.002, bytes_per_s=1e12, bytes_per_token=1.0),
)
FIRST = TIMES.model_copy(update={"decode": DecodeTimes(batches=(1, 2), fixed_s=(0.002, 0.002), token_s=0.0)})
EVERY_CORE = set(os.sched_getaffinity(0))


def double(folder: Path, role: str, port: int, admin: int, *, seqs: int) -> tuple[list[str], dict[str, str]]:
    """The command line of one double and its environment."""
    (folder / f"{role}.json").write_text((TIMES if role == "decode" else FIRST).model_dump_json())
    connector = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"kv_lease_duration": 600},
    }
    command = [
        *PROGRAM, "sim-engine", "serve", "tiny", "--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", "4096", "--max-num-seqs", str(seqs), "--kv-tokens", str(512 * seqs), "--admin-port", str(admin),
        "--no-enable-prefix-caching", "--stream-interval", str(INTERVAL), "--timing", str(folder / f"{role}.json"), "--kv-transfer-config", json.dumps(connector),
    ]  # fmt: skip
    return command, {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port()),
    }


def routing(folder: Path, engines: dict[str, list[int]], port: int, admin: int) -> Path:
    """A routing file with admission, log and health on."""
    pools = [
        {
            "address": f"bench/{role}", "role": role,
            "replicas": [
                {"address": f"bench/{role}/{i}", "host": "127.0.0.1", "port": p, "cohort": "c", "max_seqs": 20000, "kv_tokens": 1 << 40}
                for i, p in enumerate(ports)
            ],
        }
        for role, ports in engines.items()
    ]  # fmt: skip
    table = {
        "service": "bench", "generation": 1, "models": ["m"], "dialect": "nixl", "max_model_len": 4096, "pools": pools,
        "lease_s": 600, "listen": {"host": "127.0.0.1", "port": port, "admin_port": admin}, "limits": {"connections": 20000},
        "timeouts": {"handoff_s": 60, "gap_s": 120}, "log": {"file": str(folder / "access.log")}, "admission": {"queue": 20000},
    }  # fmt: skip
    path = folder / "routing.json"
    path.write_text(json.dumps(table))
    return path


def wait_for(condition: Any, what: str, seconds: float = 180) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(what)
        time.sleep(0.1)


def measure(streams: int, workers: int, *, is_compiled: bool) -> dict[str, Any]:
    """Open them, look, let them end."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = {"prefill": [free_port()], "decode": [free_port(), free_port()]}
        admins: list[int] = []
        doubles: list[subprocess.Popen[bytes]] = []
        for role, each in ports.items():
            for port in each:
                admins.append(free_port())
                command, env = double(folder, role, port, admins[-1], seqs=streams)
                os.environ.update(env)
                doubles.append(
                    stack.enter_context(running(command, core=EVERY_CORE, log=folder / f"{port}.log"))
                )
        port, admin = free_port(), free_port()
        command = [
            *PROGRAM,
            "proxy",
            "--config",
            str(routing(folder, ports, port, admin)),
            "--workers",
            str(workers),
        ]
        proxy = stack.enter_context(running(command, core=EVERY_CORE, log=folder / "proxy.log"))
        with stage("start", 300):
            for each in (*ports["prefill"], *ports["decode"]):
                wait_for(
                    lambda each=each: call(each, "/health") is not None,
                    f"the double on {each} does not answer",
                )
            wait_for(lambda: call(port, "/v1/models") is not None, "the proxy does not answer")
            time.sleep(3)
        compiled.check(proxy.pid, is_compiled=is_compiled)
        found = observed(stack, streams, proxy, doubles=doubles, port=port, admins=admins)
        return {"schema": "disaggc.bench-double-streams/v1", "compiled": is_compiled, **found}


def observed(
    stack: contextlib.ExitStack,
    streams: int,
    proxy: subprocess.Popen[bytes],
    *,
    doubles: list[subprocess.Popen[bytes]],
    port: int,
    admins: list[int],
) -> dict[str, Any]:
    before, spent = rss_bytes(proxy.pid), cpu_s(proxy.pid)
    begun = time.monotonic()
    with stage(f"open {streams:,} streams", OPEN_S):
        clients = [stack.enter_context(client(port, streams // 2, TOKENS)) for _ in range(2)]
        held = [said(each) == b"held\n" for each in clients]
    opened = time.monotonic() - begun
    states = [call(a, "/state", timeout=20) or {} for a in admins]
    found = {
        "streams": streams,
        "held": all(held),
        "open_at_once": sum(s.get("open", 0) for s in states),
        "opened_in_s": round(opened, 2),
        "proxy_workers": len(children(proxy.pid)),
        "proxy_descriptors": [descriptors(pid) for pid in children(proxy.pid)],
        "proxy_rss_mb": round(rss_bytes(proxy.pid) / 1e6, 1),
        "proxy_kb_per_stream": round((rss_bytes(proxy.pid) - before) / streams / 1e3, 2),
        "double_descriptors": [descriptors(d.pid) for d in doubles],
        "double_rss_mb": [round(rss_bytes(d.pid) / 1e6, 1) for d in doubles],
    }
    with stage("streams end", END_S):
        results = [outcome(said(each)) for each in clients]
    time.sleep(1)
    states = [call(a, "/state", timeout=20) or {} for a in admins]
    return {
        **found,
        "finished": sum(r["requests"] for r in results),
        "failed": sum(r["failed"] for r in results),
        "events": sum(r["tokens"] for r in results),
        "events_expected": streams * EVENTS,
        "proxy_cpu_s": round(cpu_s(proxy.pid) - spent, 2),
        "left_on_doubles": sum(
            s.get(k, 1) for s in states for k in ("open", "running", "pinned_blocks", "leaked_blocks")
        ),
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> int:
    """Run and print; 1 when a stream failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--interpreted", action="store_true", help="this checkout instead of the compiled package"
    )
    options = parser.parse_args()
    is_compiled = compiled.use(interpreted=options.interpreted)
    found = measure(options.streams, options.workers, is_compiled=is_compiled)
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:24} {value}")
    good = (
        found["failed"] == 0
        and found["held"]
        and found["open_at_once"] == found["finished"] == options.streams
    )
    return 0 if good and found["events"] == found["events_expected"] and not found["left_on_doubles"] else 1


if __name__ == "__main__":
    sys.exit(main())
