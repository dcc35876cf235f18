"""The simulator against a deployment in real time: engine doubles behind the real proxy, the same load and constants.

    python -m tests.bench.simulate_double [--mode 1P2D|colocated] [--clients 24] [--waves 5] [--scale 1] [--json]

`disaggc local up` starts one process per engine and the proxy; `--clients` requests at once go through it, each followed
by the next, as `vllm bench serve --max-concurrency` sends them. `disaggc simulate` gets the same plan and load. Times are
model time: clock time x scale (at least 1). A run in which the machine did not run a double in time, so that its model
time stretched by more than 1 %, is not judged (exit status 2).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.local_five_nodes import STARVED, admin_port, cpu_seconds, disaggc, lost_s
from tests.bench.stages import stage

ISL, OSL = 2048, 128
PORT, BASE_PORT = 18300, 25000
WAVE_S = 120
"""Model seconds after which a wave is given up; one takes 5 to 20."""
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
targets: {{local: {{engine: sim, time_scale: {scale}, base_port: {base}}}}}
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


async def answer(dice: random.Random) -> tuple[bool, float, float]:
    """(succeeded, TTFT, E2E) of one request through the proxy, clock seconds."""
    prompt = [dice.randrange(100, 100_000) for _ in range(ISL)]
    body = {"model": MODEL, "prompt": prompt, "max_tokens": OSL, "ignore_eos": True, "temperature": 0}
    begun = time.monotonic()
    whole, first, last = await streamed(PORT, body)
    return whole, first - begun, last - begun


async def load(clients: int, waves: int) -> tuple[list[tuple[bool, float, float]], float]:
    """Every answer, and the clock time all of them took."""

    async def one(number: int) -> list[tuple[bool, float, float]]:
        dice = random.Random(number)  # noqa: S311 - prompts, not secrets
        return [await answer(dice) for _ in range(waves)]

    begun = time.monotonic()
    found = [seen for answers in await asyncio.gather(*map(one, range(clients))) for seen in answers]
    return found, time.monotonic() - begun


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def deployed(folder: Path, clients: int, waves: int, *, scale: float) -> dict[str, float]:
    """What the deployment in `folder` did, in model time."""
    with stage("local up", 150):
        up = json.loads(disaggc("local", "up", folder, "--timeout", "120", "--format", "json", "--quiet"))
    try:
        programs = up["programs"]
        proxy = next(p["pid"] for p in programs if p["kind"] == "proxy")
        before = cpu_seconds(proxy)
        with stage(f"{waves} waves of {clients} requests", 60 + WAVE_S * waves / scale):
            answers, clock = asyncio.run(load(clients, waves))
        spent = cpu_seconds(proxy) - before
        lost = max(lost_s([admin_port(p["pid"]) for p in programs if p["kind"] != "proxy"]))
    finally:
        disaggc("local", "down", folder, "--now", "--quiet", check=False)
    good = [a for a in answers if a[0]]
    if not good:
        raise SystemExit("no request succeeded")
    return {
        "output_tok_per_s": len(good) * OSL / (clock * scale),
        "ttft_p50_ms": 1e3 * scale * middle([a[1] for a in good]),
        "tpot_mean_ms": 1e3 * scale * sum((a[2] - a[1]) / (OSL - 1) for a in good) / len(good),
        "e2e_p50_ms": 1e3 * scale * middle([a[2] for a in good]),
        "failed": len(answers) - len(good),
        "clock_lost_share": lost / clock,
        "proxy_core_share": spent / clock,
    }


def measure(
    folder: Path, mode: str, clients: int, *, waves: int, scale: float
) -> dict[str, dict[str, float]]:
    spec, out = folder / "spec.yaml", folder / "out"
    spec.write_text(
        SPEC.format(
            isl=ISL, osl=OSL, clients=clients, port=PORT, base=BASE_PORT, constraints=MODES[mode], scale=scale
        )
    )
    with stage("build", 120):
        disaggc("build", spec, "--out", out, "--quiet")
    wanted = ("simulate", spec, "--mode", "plan", "--bench", f"{ISL}/{OSL}/{clients}")
    with stage("simulate", 300):
        told = disaggc(*wanted, "--requests", str(clients * waves), "--format", "json", "--quiet")
    run = json.loads(told)["runs"][0]
    seen = run["classes"]["bench"]
    simulated = {
        "output_tok_per_s": run["output_tok_per_s"],
        "ttft_p50_ms": seen["ttft_ms"]["p50"],
        "tpot_mean_ms": seen["tpot_ms"]["mean"],
        "e2e_p50_ms": seen["e2e_ms"]["p50"],
        "failed": seen["failed"],
    }
    return {"double": deployed(out, clients, waves, scale=scale), "simulated": simulated}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mode", choices=sorted(MODES), default="1P2D")
    options.add_argument("--clients", type=int, default=24)
    options.add_argument("--waves", type=int, default=5)
    options.add_argument("--scale", type=float, default=1.0)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="disaggc-double-") as folder:
        found = measure(Path(folder), given.mode, given.clients, waves=given.waves, scale=given.scale)
    double, simulated = found["double"], found["simulated"]
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{'':18} {'double':>10} {'simulated':>10} {'ratio':>7}")
        for name, other in simulated.items():
            ratio = f"{other / double[name]:7.3f}" if double[name] else "      -"
            print(f"{name:18} {double[name]:10,.1f} {other:10,.1f} {ratio}")
        print(
            f"proxy: {double['proxy_core_share']:.0%} of a core; clock stretched by {double['clock_lost_share']:.2%}"
        )
    if double["clock_lost_share"] > STARVED:
        print(
            f"not judged: the machine stretched a double's time by more than {STARVED:.0%}", file=sys.stderr
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
