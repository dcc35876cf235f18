from __future__ import annotations

import json

import pytest

from disaggc.cli.main import main
from disaggc.perf.calibration.schedule import schedule
from tests.perf.calibration.runs import Engine, written


@pytest.fixture
def results(tmp_path):
    for i, run in enumerate(schedule(16384, 256)):
        written(tmp_path / "runs", f"{i}", Engine().run(run.kind, run.isl, run.osl, run.concurrency))
    return tmp_path / "runs"


def test_a_calibration_is_written_and_a_plan_picks_it_up(results, tmp_path, capsys):
    example = tmp_path / "spec"
    assert main(["init", str(example), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    assert main(["calibrate", str(results), "--out", str(example / "mine.yaml")]) == 0
    said = capsys.readouterr().err
    assert "decode step: 7 runs" in said
    assert "calibration: mine.yaml" in said
    spec = example / "disaggc.yaml"
    spec.write_text(spec.read_text() + "calibration: mine.yaml\n")
    assert main(["plan", str(spec), "--refresh=false"]) == 0
    assert "basis: calibrated" in capsys.readouterr().out


def test_the_report_as_json(results, capsys):
    assert main(["calibrate", str(results), "--format", "json", "-q"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "disaggc.calibrate/v1"
    (engine,) = document["engines"]
    assert {part["title"] for part in engine["parts"]} == {"decode step", "prefill", "kv transfer"}


def test_the_bench_schedule_of_a_spec_is_thirteen_commands(tmp_path, capsys):
    assert main(["init", str(tmp_path / "spec"), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    capsys.readouterr()
    assert main(["calibrate", "--plan", str(tmp_path / "spec" / "disaggc.yaml")]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert len(lines) == 13
    assert all(line.startswith("vllm bench serve --model deepseek-ai/DeepSeek-R1 ") for line in lines)


def test_nothing_to_fit_is_an_error_without_a_file(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    assert main(["calibrate", str(tmp_path / "x.json"), "--out", str(tmp_path / "out.yaml")]) == 1
    assert not (tmp_path / "out.yaml").exists()
    assert "nothing could be fitted" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["x.json", "--kind", "odd"]])
def test_wrong_usage(arguments):
    assert main(["calibrate", *arguments]) == 64
