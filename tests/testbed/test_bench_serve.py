"""`vllm bench serve` of a real vLLM, unchanged, against the proxy: its OpenAI backends, one prefill and one decode double.

The figures are printed: run with -s to see them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.testbed.test_real_vllm import disaggc, free_port, metrics
from tests.testbed.vllm_cpu import tiny_model, vllm_venv

pytestmark = [pytest.mark.testbed, pytest.mark.xdist_group("real-vllm")]
REQUESTS, OUTPUT, AT_ONCE = 100, 64, 16
INPUT = 2048
"""Well above the prompt length below which the plan lets decode do the prefill."""
SPEC = """
version: 1
cluster:
  fabric: {{type: infiniband, speed_per_nic: 200Gbit}}
  nodes:
    mi300x: {{count: 2, accelerator: {{type: mi300x, per_node: 8}}, nics: {{per_node: 8}}}}
services:
  chat:
    model: {{id: deepseek-ai/DeepSeek-R1, weights: /models/DeepSeek-R1, served_name: tiny}}
    workload: {{bench: {{input_tokens: {input}, output_tokens: {output}, concurrency: {at_once}}}}}
    engine: {{vllm: 0.33.0, settings: {{max-model-len: 8192}}}}
    constraints: {{mode: disaggregated, prefill: {{replicas: 1, tp: [8]}}, decode: {{replicas: 1, tp: [8]}}}}
    proxy: {{port: {port}}}
targets: {{local: {{engine: sim, base_port: {base}}}}}
target: local
"""


@dataclass(frozen=True)
class Doubles:
    """Where the proxy and the two doubles are."""

    proxy: str
    prefill: str
    decode: str


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> tuple[Path, Path]:
    venv = vllm_venv()
    return venv, tiny_model(venv, tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def doubles(tmp_path_factory) -> Iterator[Doubles]:
    folder = tmp_path_factory.mktemp("bench")
    spec = folder / "spec.yaml"
    spec.write_text(SPEC.format(input=INPUT, output=OUTPUT, at_once=AT_ONCE, port=free_port(), base=29000))
    disaggc("plan", spec, "--refresh=false", "--out", folder / "plan.json")
    disaggc("build", spec, "--out", folder / "out")
    try:
        up = disaggc("local", "up", folder / "out", "--timeout", "120", "--format", "json", timeout=180)
        urls = {one["address"]: one["url"] for one in json.loads(up)["programs"]}
        yield Doubles(urls["chat/proxy/0"], urls["chat/prefill/0"], urls["chat/decode/0"])
    finally:
        disaggc("local", "down", folder / "out", "--now", codes=(0, 1))


def bench(real: tuple[Path, Path], url: str, out: Path, *more: str) -> dict[str, float]:
    """Run it as a user does and read the result it saves."""
    venv, model = real
    words = [
        venv / "bin" / "vllm", "bench", "serve", "--base-url", url, "--model", "tiny", "--tokenizer", model,
        "--dataset-name", "random", "--random-input-len", INPUT, "--random-output-len", OUTPUT, "--ignore-eos",
        "--num-prompts", REQUESTS, "--max-concurrency", AT_ONCE, "--disable-tqdm", "--save-result",
        "--result-dir", out, "--result-filename", "result.json", *more,
    ]  # fmt: skip
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found: dict[str, float] = json.loads((out / "result.json").read_text())
    return found


@pytest.mark.parametrize(
    "backend",
    [
        ("--backend", "openai", "--endpoint", "/v1/completions", "--seed", "1"),
        ("--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--seed", "2"),
    ],
    ids=lambda words: words[1],
)
def test_it_measures_the_proxy_without_a_failed_request(real, doubles: Doubles, tmp_path, backend):
    before = metrics(doubles.decode).totals
    found = bench(real, doubles.proxy, tmp_path, *backend)
    after = metrics(doubles.decode).totals
    gained = {name: value - before.get(name, 0) for name, value in after.items()}
    remote, local = (
        gained[name]
        for name in (
            "vllm:external_prefix_cache_hits_total",
            "vllm:prompt_tokens_by_source_total:local_compute",
        )
    )
    print(
        f"\n{backend[1]}: {found['completed']} completed, {found['failed']} failed, TTFT mean {found['mean_ttft_ms']:.1f} "
        f"p99 {found['p99_ttft_ms']:.1f} ms, TPOT mean {found['mean_tpot_ms']:.2f} p99 {found['p99_tpot_ms']:.2f} ms, "
        f"{found['output_throughput']:.0f} tokens/s, {remote:.0f} prompt tokens from prefill, {local:.0f} computed by decode"
    )
    assert (found["completed"], found["failed"]) == (REQUESTS, 0)
    assert found["total_output_tokens"] == REQUESTS * OUTPUT, "a stream was cut, or its usage is missing"
    assert found["mean_ttft_ms"] > 0
    assert found["mean_tpot_ms"] > 0
    assert remote > 100 * local, "decode computed prompts that prefill should have"
