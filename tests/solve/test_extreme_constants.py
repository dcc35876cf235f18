"""Constants of a calibration file that each make sense and together do not: never more than the solver's integers hold."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from disaggc.cli.main import main
from disaggc.perf.constant_bounds import BOUNDS

SPEC = """
version: 1
cluster:
  fabric: {type: infiniband, speed_per_nic: 200Gbit}
  nodes: {h100: {count: 5, accelerator: {type: h100-sxm, per_node: 8}, price: 24 USD/h}}
services:
  chat:
    model: {id: Qwen/Qwen3-32B}
    workload: {reasoning: {input_tokens: 1024, output_tokens: 8192, concurrency: 480}}
    engine: {vllm: 0.33.0}
    constraints: {mode: MODE}
optimize: GOAL
calibration: calibration.yaml
"""
DIRECT = (
    "decode_fixed_s", "decode_per_sequence_s", "decode_per_token_s", "prefill_per_token_s", "prefill_per_square_s",
    "kv_bytes_per_s",
)  # fmt: skip
SLOWEST = {name: most for name, (_, most) in BOUNDS.items()}
FASTEST = {
    **{name: most for name, (_, most) in BOUNDS.items() if name.endswith("_eff")},
    **{name: least for name, (least, _) in BOUNDS.items() if name.endswith("_s") and name != "kv_bytes_per_s"},
    "prefill_per_token_s": 1e-30, "kv_bytes_per_s": BOUNDS["kv_bytes_per_s"][1],
}  # fmt: skip


def planned(folder: Path, constants: dict[str, float], *, mode: str, goal: str) -> int:
    entry = {"model": "Qwen/Qwen3-32B", "accelerator": "h100-sxm", "constants": constants}
    told = {"version": 1, "provenance": {"tool": "x"}, "entries": [entry]}
    (folder / "calibration.yaml").write_text(yaml.safe_dump(told))
    (folder / "disaggc.yaml").write_text(SPEC.replace("MODE", mode).replace("GOAL", goal))
    return main(["plan", str(folder / "disaggc.yaml"), "--refresh=false"])


@pytest.mark.parametrize("goal", ["throughput", "latency"])
@pytest.mark.parametrize("mode", ["auto", "colocated"])
@pytest.mark.parametrize("constants", [SLOWEST, FASTEST], ids=["slowest", "fastest"])
def test_no_constants_are_more_than_the_solver_can_count(tmp_path, capsys, constants, mode, goal):
    assert planned(tmp_path, constants, mode=mode, goal=goal) in (0, 3)
    assert "this is a bug" not in capsys.readouterr().err


def test_a_request_that_never_ends_is_told_at_the_calibration_with_a_way_out(tmp_path, capsys):
    assert planned(tmp_path, SLOWEST, mode="colocated", goal="throughput") == 3
    said = capsys.readouterr().err
    assert (
        "error[DGC501 infeasible]: no colocated replica of `chat` answers a request within ten years" in said
    )
    assert "takes 96 years by the constants of the calibration file" in said
    assert "disaggc.yaml:13:14" in said
    assert "leave out the constants that nobody measured" in said


def test_without_a_fit_of_their_own_they_are_told_alike(tmp_path):
    computed = {name: value for name, value in SLOWEST.items() if name not in DIRECT}
    assert planned(tmp_path, computed, mode="disaggregated", goal="cost") == 3
