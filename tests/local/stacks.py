"""A small stack of doubles for tests: its spec, its ports, and the command line beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SPEC = """
version: 1
cluster:
  fabric: {type: infiniband, speed_per_nic: 400Gbit}
  nodes:
    h100: {count: 2, accelerator: {type: h100-sxm, per_node: 2}, nics: {per_node: 2}}
services:
  chat:
    model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
    workload: {w: {input_tokens: 1024, output_tokens: 256, concurrency: 20}}
    engine: {vllm: 0.33.0, settings: {max-model-len: 4096}, env: {HF_TOKEN: {secret: hf}}}
    constraints: {mode: disaggregated, prefill: {replicas: 1, tp: [2]}, decode: {replicas: 1, tp: [2]}}
    proxy: {port: PROXY, api_key: {env: CHAT_KEY}}
targets: {local: {engine: sim, time_scale: 20, base_port: BASE}}
target: local
"""
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
"""Workers of one machine want ports of their own."""
BASE, PROXY = 12000 + 700 * (WORKER % 8), 18400 + WORKER
SECRETS = {"HF_TOKEN": "x", "CHAT_KEY": "k y"}


START = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"


def disaggc(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, *words],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(env or {})},
    )  # fmt: skip


def status(folder: Path) -> dict[str, object]:
    return json.loads(disaggc(folder, "local", "status", "out", "--format", "json").stdout)


def build(folder: Path, *, more: tuple[str, ...] = ()) -> None:
    """`out/` and `plan.json` in the folder."""
    (folder / "disaggc.yaml").write_text(SPEC.replace("BASE", str(BASE)).replace("PROXY", str(PROXY)))
    assert disaggc(folder, "plan", "--refresh=false", "-q", "--out", "plan.json", *more).returncode == 0
    assert disaggc(folder, "build", "--out", "out", "-q", *more).returncode == 0
