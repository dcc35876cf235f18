"""A plan whose step times are the real library's, in a folder of its own: installed once and kept, or said why not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from disaggc.perf.aiconfigurator import PACKAGE
from tests.testbed.vllm_cpu import alone, cache

pytestmark = pytest.mark.testbed
VERSION = "0.12.0"
SPEC = """
version: 1
cluster:
  fabric: {type: infiniband, speed_per_nic: 400Gbit}
  nodes: {gpu: {count: 2, accelerator: {type: ACCELERATOR, per_node: 8}, nics: {per_node: 8}}}
services:
  chat:
    model: {id: Qwen/Qwen3-32B, weights: /models/qwen}
    workload: {talk: {input_tokens: 2048, output_tokens: 512, rate: 10/s, concurrency: 400}}
    engine: {vllm: 0.33.0, settings: {max-model-len: 8192}}
    proxy: {api_key: {env: KEY}}
step_times: aiconfigurator
"""


@pytest.fixture(scope="module")
def library() -> Path:
    """The library with what it needs, beside this environment and not in it; 600 MB, a minute."""
    folder = cache() / f"aiconfigurator-{VERSION}"
    with alone(folder):
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "-q", "--target", folder, f"{PACKAGE}=={VERSION}"],
                capture_output=True, text=True, check=False, timeout=1200,
            )  # fmt: skip
            if done.returncode:
                shutil.rmtree(folder, ignore_errors=True)
                pytest.skip(
                    f"{PACKAGE} {VERSION} cannot be installed: {done.stderr.strip().splitlines()[-1]}"
                )
            (folder / "whole").touch()
    return folder


def disaggc(verb: str, spec: Path, library: Path, *options: str) -> tuple[dict[str, object], str]:
    env = {**os.environ, "PYTHONPATH": str(library)}
    command = [Path(sys.executable).with_name("disaggc"), verb, str(spec), *options, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(done.stdout), done.stderr


def written(tmp_path: Path, accelerator: str) -> Path:
    spec = tmp_path / "disaggc.yaml"
    spec.write_text(SPEC.replace("ACCELERATOR", accelerator))
    return spec


def test_a_plan_rests_on_the_measured_tables_and_says_so(library, tmp_path):
    plan, _ = disaggc("plan", written(tmp_path, "h100-sxm"), library, "--refresh=false")
    predicted = plan["services"]["chat"]["predicted"]
    assert predicted["output_tok_per_s"]["basis"] == "tables"
    assert predicted["classes"]["talk"]["itl_ms"]["p50"]["basis"] == "tables"
    step = predicted["classes"]["talk"]["itl_ms"]["p50"]["value"]
    assert 3 < step < 60, "a step of Qwen3-32B on H100 takes milliseconds"


def test_the_simulator_runs_on_them(library, tmp_path):
    runs, _ = disaggc(
        "simulate",
        written(tmp_path, "h200"),
        library,
        "--mode",
        "1P1D",
        "--bench",
        "2k/256/16",
        "--requests",
        "100",
    )
    assert runs["runs"][0]["basis"] == "tables"
    assert runs["runs"][0]["classes"]["bench"]["failed"] == 0


def test_where_it_measured_nothing_the_prior_is_used_with_a_warning(library, tmp_path):
    plan, _ = disaggc("plan", written(tmp_path, "mi300x"), library, "--refresh=false")
    assert plan["services"]["chat"]["predicted"]["output_tok_per_s"]["basis"] == "prior"
    (found,) = [d for d in plan["diagnostics"] if d["code"] == "DGC208"]
    assert f"aiconfigurator {VERSION} has no measurements on mi300x" in found["message"]
