"""The simulator against engine doubles in real time: the same layout, load and constants, no proxy between.

    python -m tests.bench.simulate_double [--mode 1P2D|colocated] [--clients 24] [--waves 5] [--scale 1] [--json]

`--clients` requests at once, each followed by the next, as `vllm bench serve --max-concurrency` sends them. Times are
model time: clock time x scale. On a busy machine a scale below 1 keeps the doubles on time.
"""

from __future__ import annotations

import argparse
import asyncio
import configparser
import itertools
import json
import random
import shlex
import tempfile
import time
from pathlib import Path

from disaggc.simengine.engine import Engine
from disaggc.simengine.options import read_options
from tests.bench.local_five_nodes import disaggc

ISL, OSL = 2048, 128
PORT, BASE_PORT = 18300, 25000
MODEL = "Qwen/Qwen3-32B"
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
MODES = {
    "1P2D": "{mode: disaggregated, prefill: {replicas: 1, tp: [2]}, decode: {replicas: 2, tp: [2]}}",
    "colocated": "{mode: colocated, colocated: {replicas: 3, tp: [2]}}",
}
SPEC = """
version: 1
cluster:
  fabric: {{type: infiniband, speed_per_nic: 200Gbit}}
  nodes:
    h100: {{count: 1, accelerator: {{type: h100-sxm, per_node: 8}}, nics: {{per_node: 8}}}}
services:
  chat:
    model: {{id: Qwen/Qwen3-32B}}
    workload:
      talk: {{input_tokens: {isl}, output_tokens: {osl}, concurrency: {clients}}}
    engine: {{vllm: 0.33.0, settings: {{max-model-len: 8192}}}}
    constraints: {constraints}
    proxy: {{port: {port}}}
targets: {{local: {{engine: sim, base_port: {base}}}}}
target: local
"""


async def streamed(port: int, body: dict[str, object]) -> tuple[bool, float, float]:
    """(whole answer came, clock of its first event, clock of its last)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    text = json.dumps({**body, "stream": True}).encode()
    writer.write(HEAD % len(text) + text)
    first = last = 0.0
    whole = False
    while line := await reader.readline():
        if line.startswith(b"data:"):
            last = time.monotonic()
            first = first or last
            whole = whole or b"[DONE]" in line
    writer.close()
    return whole, first, last


async def prefilled(port: int, body: dict[str, object]) -> object:
    """What a prefill engine hands over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    wish = {"do_remote_decode": True, "do_remote_prefill": False}
    text = json.dumps({**body, "max_tokens": 1, "kv_transfer_params": wish}).encode()
    writer.write(HEAD % len(text) + text)
    reply = await reader.read()
    writer.close()
    return json.loads(reply[reply.index(b"{") : reply.rindex(b"}") + 1])["kv_transfer_params"]


class Cluster:
    """Doubles in this process, and the two legs of a request that a proxy would make."""

    def __init__(self, config: Path, scale: float) -> None:
        parser = configparser.RawConfigParser()
        parser.read(config)
        self.engines: dict[str, list[Engine]] = {"prefill": [], "decode": [], "colocated": []}
        for name in parser.sections():
            role = name.split("-")[-2] if name.startswith("program:") else ""
            if role in self.engines:
                command = parser[name]["command"].replace("%(here)s", str(config.parent))
                words = shlex.split(command)[1:]
                at = words.index("serve")
                timing = (
                    ["--timing", str(config.parent / words[words.index("--timing") + 1])]
                    if "--timing" in words
                    else []
                )
                env = dict(word.split("=", 1) for word in words[:at] if "=" in word)
                self.engines[role].append(
                    Engine(read_options([*words[at:], *timing, "--time-scale", f"{scale:g}"], env))
                )
        self.turn = {role: itertools.cycle(found) for role, found in self.engines.items() if found}

    async def start(self) -> None:
        for found in self.engines.values():
            for engine in found:
                await engine.start()

    async def stop(self) -> None:
        for found in self.engines.values():
            for engine in found:
                await engine.stop()

    async def request(self, dice: random.Random) -> tuple[bool, float, float]:
        """(succeeded, TTFT, E2E) in clock seconds."""
        prompt = [dice.randrange(100, 100_000) for _ in range(ISL)]
        body = {"model": MODEL, "prompt": prompt, "max_tokens": OSL, "ignore_eos": True, "temperature": 0}
        begun = time.monotonic()
        role = "colocated"
        if "prefill" in self.turn:
            role = "decode"
            body["kv_transfer_params"] = await prefilled(next(self.turn["prefill"]).port, body)
        whole, first, last = await streamed(next(self.turn[role]).port, body)
        return whole, first - begun, last - begun


async def load(
    config: Path, clients: int, waves: int, *, scale: float
) -> tuple[list[tuple[bool, float, float]], float]:
    """Every answer, and the clock time all of them took."""
    cluster = Cluster(config, scale)
    await cluster.start()

    async def one(number: int) -> list[tuple[bool, float, float]]:
        dice = random.Random(number)  # noqa: S311 - prompts, not secrets
        return [await cluster.request(dice) for _ in range(waves)]

    begun = time.monotonic()
    found = [answer for answers in await asyncio.gather(*map(one, range(clients))) for answer in answers]
    took = time.monotonic() - begun
    await cluster.stop()
    return found, took


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def measure(
    folder: Path, mode: str, clients: int, *, waves: int, scale: float
) -> dict[str, dict[str, float]]:
    spec = folder / "spec.yaml"
    spec.write_text(
        SPEC.format(isl=ISL, osl=OSL, clients=clients, port=PORT, base=BASE_PORT, constraints=MODES[mode])
    )
    disaggc("build", spec, "--out", folder / "out", "--quiet")
    wanted = ("simulate", spec, "--mode", "plan", "--bench", f"{ISL}/{OSL}/{clients}")
    run = json.loads(
        disaggc(*wanted, "--no-admission", "--requests", str(clients * waves), "--format", "json")
    )["runs"][0]
    answers, clock = asyncio.run(load(folder / "out" / "supervisord.conf", clients, waves, scale=scale))
    took = clock * scale
    good = [a for a in answers if a[0]]
    if not good:
        raise SystemExit("no request succeeded")
    seen = run["classes"]["bench"]
    double = {
        "output_tok_per_s": len(good) * OSL / took,
        "ttft_p50_ms": 1e3 * scale * middle([a[1] for a in good]),
        "tpot_mean_ms": 1e3 * scale * sum((a[2] - a[1]) / (OSL - 1) for a in good) / len(good),
        "e2e_p50_ms": 1e3 * scale * middle([a[2] for a in good]),
        "failed": len(answers) - len(good),
    }
    simulated = {
        "output_tok_per_s": run["output_tok_per_s"],
        "ttft_p50_ms": seen["ttft_ms"]["p50"],
        "tpot_mean_ms": seen["tpot_ms"]["mean"],
        "e2e_p50_ms": seen["e2e_ms"]["p50"],
        "failed": seen["failed"],
    }
    return {"double": double, "simulated": simulated}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mode", choices=sorted(MODES), default="1P2D")
    options.add_argument("--clients", type=int, default=24)
    options.add_argument("--waves", type=int, default=5)
    options.add_argument("--scale", type=float, default=1.0)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="disaggc-double-") as folder:
        found = measure(Path(folder), given.mode, given.clients, waves=given.waves, scale=given.scale)
    if given.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'':18} {'double':>10} {'simulated':>10} {'ratio':>7}")
    for name, value in found["double"].items():
        other = found["simulated"][name]
        ratio = f"{other / value:7.3f}" if value else "      -"
        print(f"{name:18} {value:10,.1f} {other:10,.1f} {ratio}")


if __name__ == "__main__":
    main()
