"""The five-node plan run on this machine by target local with engine doubles, under the load it was planned for.

    python -m tests.bench.local_five_nodes [--scale 4] [--waves 2] [--stream-interval 1] [--json]

Every client sends its next request when the last one ended, as `vllm bench serve --max-concurrency` does: 480 at once,
1,024 tokens in, 8,192 out. Doubles take the plan's own constants at `--scale` times the clock, so output tokens per
second of model time are compared with the plan's prediction. Also prints what the proxy's processes cost of one core;
the highest scale at which that stays under 70 % is the highest at which the proxy cannot be what limits the run.

The plan predicts a steady state, so what is compared is the time in which every client is being answered: from the last
client's first event to the first client's last one. A double that the machine does not run in time puts its steps off:
where that stretches its model time by more than 1 % of the steady time, nothing is judged and the exit status is 2.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests import compiled
from tests.bench.fault_stack import call
from tests.bench.stages import stage

ISL, OSL, CLIENTS = 1024, 8192, 480
STARVED = 0.01
"""Share of the steady time by which the machine may stretch a double's model time before nothing is judged."""
PATIENCE = 4
"""Times the planned duration after which the load is given up."""
PORT = 18200
BASE_PORT = 24000
SPEC = """
version: 1
cluster:
  fabric: {{type: infiniband, speed_per_nic: 200Gbit}}
  nodes:
    mi300x: {{count: 5, accelerator: {{type: mi300x, per_node: 8}}, nics: {{per_node: 8}}}}
services:
  chat:
    model: {{id: deepseek-ai/DeepSeek-R1, weights: /models/DeepSeek-R1}}
    workload:
      reasoning: {{input_tokens: {isl}, output_tokens: {osl}, concurrency: {clients}}}
    engine: {{vllm: 0.33.0, settings: {{max-model-len: 16384, stream-interval: {interval}}}}}
    constraints: {{mode: disaggregated, prefill: {{replicas: 1, tp: [8]}}, decode: {{replicas: 4, tp: [8]}}}}
    proxy: {{port: {port}}}
targets: {{local: {{engine: sim, time_scale: {scale}, base_port: {base}}}}}
target: local
"""


def disaggc(*words: str | Path, check: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))", *map(str, words)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if check and done.returncode:
        raise SystemExit(f"disaggc {words[0]}: {done.stdout}\n{done.stderr}")
    return done.stdout


class Client(asyncio.Protocol):
    """Counts the bytes of one streamed answer and looks only for its end."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        self.on_event = on_event
        self.ended = asyncio.get_running_loop().create_future()
        self.head = b""
        self.spoke = False
        self.last = b""

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if len(self.head) < 12:
            self.head += data[:12]
        if b"data:" in data and not self.spoke:
            self.spoke = True
            self.on_event()
        self.last = (self.last + data)[-32:]

    def connection_lost(self, _) -> None:
        if not self.ended.done():
            self.ended.set_result(self.head.startswith(b"HTTP/1.1 200") and b"[DONE]" in self.last)


async def request(dice: random.Random, on_event: Callable[[], None]) -> bool:
    body = json.dumps({
        "model": "deepseek-ai/DeepSeek-R1", "prompt": [dice.randrange(100, 100_000) for _ in range(ISL)],
        "max_tokens": OSL, "ignore_eos": True, "temperature": 0, "stream": True,
    }).encode()  # fmt: skip
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    transport, client = await asyncio.get_running_loop().create_connection(
        lambda: Client(on_event), "127.0.0.1", PORT
    )
    transport.write(head.encode() + body)
    return await client.ended


@dataclass
class Window:
    """When every client was being answered, and what the engines had generated at both ends."""

    urls: list[str]
    admins: list[int]
    open: int = 0
    ends: list[tuple[float, float, list[float]]] = field(default_factory=list)

    def begun(self) -> None:
        """A client saw its first event."""
        self.open += 1
        if self.open == CLIENTS:
            self.look()

    def over(self) -> None:
        """A client has nothing left to ask."""
        if len(self.ends) == 1:
            self.look()

    def look(self) -> None:
        self.ends.append((time.monotonic(), generated(self.urls), lost_s(self.admins)))

    @property
    def rate(self) -> float | None:
        """Tokens per second; None when no moment had all of them."""
        if len(self.ends) < 2:
            return None
        (begun, before, _), (ended, after, _) = self.ends
        return (after - before) / (ended - begun)

    @property
    def lost(self) -> float | None:
        """Share of that time by which the worst double's model time was stretched."""
        if len(self.ends) < 2:
            return None
        (begun, _, before), (ended, _, after) = self.ends
        return max(b - a for a, b in zip(before, after, strict=True)) / (ended - begun)


async def load(waves: int, window: Window) -> tuple[int, int]:
    async def one(number: int) -> list[bool]:
        dice = random.Random(number)  # noqa: S311 - prompts, not secrets
        done = [await request(dice, window.begun if wave == 0 else int) for wave in range(waves)]
        window.over()
        return done

    done = [ok for found in await asyncio.gather(*map(one, range(CLIENTS))) for ok in found]
    return sum(done), len(done)


def admin_port(pid: int) -> int:
    """Of a double's process."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return int(words[words.index("--admin-port") + 1])


def lost_s(admins: list[int]) -> list[float]:
    """How long each double's steps were put off for good so far, because the machine did not run it in time."""
    return [float(call(port, "/state", timeout=30)["lost_s"]) for port in admins]


def reasons(folder: Path) -> dict[str, int]:
    """What the proxy's access log says of requests that did not end well, and how often."""
    found: Counter[str] = Counter()
    for log in folder.glob("run/*proxy*"):
        for line in log.read_text(errors="replace").splitlines():
            if line.startswith('{"time"'):
                said = json.loads(line)
                if said["outcome"] != "ok":
                    where = (
                        f"prefill {said['prefill']}, decode {said['decode']}" if said["prefill"] else "no leg"
                    )
                    found[f"{said['status']} {said['outcome']} after {said['retries']} retries, {where}"] += 1
    return dict(found)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and its children that live."""
    total = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(entry.name) == pid or int(fields[1]) == pid:
                total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def generated(urls: list[str]) -> float:
    total = 0.0
    for url in urls:
        text = urllib.request.urlopen(f"{url}/metrics", timeout=30).read().decode()  # noqa: S310 - loopback
        total += sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("vllm:generation_tokens_total")
        )
    return total


def measure(
    folder: Path, scale: float, waves: int, *, interval: int, is_compiled: bool
) -> dict[str, float | None]:
    spec = folder / "spec.yaml"
    spec.write_text(
        SPEC.format(
            isl=ISL, osl=OSL, clients=CLIENTS, port=PORT, base=BASE_PORT, scale=scale, interval=interval
        )
    )
    with stage("plan and build", 240):
        planned = json.loads(disaggc("plan", spec, "--refresh=false", "--format", "json"))
        predicted = planned["services"]["chat"]["predicted"]["output_tok_per_s"]
        disaggc("build", spec, "--out", folder / "out", "--quiet")
    with stage("local up", 150):
        up = json.loads(
            disaggc("local", "up", folder / "out", "--timeout", "120", "--format", "json", "--quiet")
        )
    try:
        pids = {program["kind"]: program["pid"] for program in up["programs"]}
        compiled.check(pids["proxy"], is_compiled=is_compiled)
        urls = [program["url"] for program in up["programs"] if "/decode/" in program["address"]]
        before = {program["name"]: cpu_seconds(program["pid"]) for program in up["programs"]}
        own, begun = time.process_time(), time.monotonic()
        decodes = [program["pid"] for program in up["programs"] if "/decode/" in program["address"]]
        window = Window(urls, list(map(admin_port, decodes)))
        planned_s = waves * CLIENTS * OSL / (predicted["value"] * scale)
        with stage(f"{waves} waves of {CLIENTS}, planned {planned_s:.0f} s", 120 + PATIENCE * planned_s):
            ok, asked = asyncio.run(load(waves, window))
        took = time.monotonic() - begun
        own = time.process_time() - own
        tokens = generated(urls)
        spent = {
            program["name"]: cpu_seconds(program["pid"]) - before[program["name"]]
            for program in up["programs"]
        }
        time.sleep(0.5)
        unwell = reasons(folder / "out")
        proxy = cpu_seconds(pids["proxy"]) and spent["chat-proxy-0"]
    finally:
        disaggc("local", "down", folder / "out", "--now", "--quiet", check=False)
    steady = None if window.rate is None else window.rate / scale
    starved = window.lost is None or window.lost > STARVED
    return {
        "compiled": is_compiled,
        "scale": scale,
        "stream_interval": interval,
        "requests": asked,
        "succeeded": ok,
        "unwell": unwell,
        "seconds": took,
        "tokens_by_engines": tokens,
        "tokens_per_s_of_clock": ok * OSL / took,
        "output_tok_per_s_whole_run": ok * OSL / (took * scale),
        "output_tok_per_s_steady": steady,
        "clock_lost_share": window.lost,
        "starved": starved,
        "predicted_tok_per_s": predicted["value"],
        "predicted_low": predicted["low"],
        "predicted_high": predicted["high"],
        "measured_over_predicted": None if steady is None or starved else steady / predicted["value"],
        "proxy_core_share": proxy / took,
        "proxy_us_per_token": proxy / (ok * OSL) * 1e6 if ok else 0.0,
        "decode_double_core_share": max(v for k, v in spent.items() if "decode" in k) / took,
        "client_core_share": own / took,
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--scale", type=float, default=4.0)
    options.add_argument("--waves", type=int, default=2)
    options.add_argument("--stream-interval", type=int, default=1)
    options.add_argument("--json", action="store_true")
    options.add_argument(
        "--interpreted", action="store_true", help="this checkout instead of the compiled package"
    )
    given = options.parse_args()
    is_compiled = compiled.use(interpreted=given.interpreted)
    with tempfile.TemporaryDirectory(prefix="disaggc-five-") as folder:
        found = measure(
            Path(folder), given.scale, given.waves, interval=given.stream_interval, is_compiled=is_compiled
        )
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            print(f"{name:28} {value:,.4g}" if isinstance(value, float) else f"{name:28} {value}")
    if found["starved"]:
        print(
            f"not judged: the machine stretched a double's time by {found['clock_lost_share']}, more than {STARVED:.0%}; "
            "a lower --scale or an idler machine is needed",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
