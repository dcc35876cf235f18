from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from disaggc.cli.main import main
from disaggc.ir.plan import Shape
from disaggc.perf.models import Models
from tests.perf.perf_cases import bench, load, nodes

MODEL = "deepseek-ai/DeepSeek-R1"


def text(model=MODEL, accelerator="mi300x", shape=None):
    entry = {"model": model, "accelerator": accelerator, "constants": {"step_miss": 1.1}}
    entry |= {} if shape is None else {"shape": shape}
    return yaml.safe_dump({"version": 1, "provenance": {"tool": "test"}, "entries": [entry]})


def findings(calibration):
    group = nodes("mi300x")
    one = bench(MODEL, group, Shape(tp=8), load(concurrency=8), calibration=calibration)
    decode = replace(one.service.decode, groups=(group.name,))
    resolved = replace(one.models.resolved, services=(replace(one.service, decode=decode),))
    return [(d.code, d.message) for d in Models.of(resolved).diagnostics]


def test_a_file_of_another_accelerator_is_a_warning_that_says_what_it_knows():
    ((code, message),) = findings(text(accelerator="h100-sxm", shape={"tp": 8}))
    assert code == "DGC209"
    assert f"{MODEL} on mi300x" in message
    assert f"it knows {MODEL} on h100-sxm tp8" in message


def test_a_file_of_another_model_is_a_warning():
    assert [code for code, _ in findings(text(model="nobody/Nothing-1B"))] == ["DGC209"]


def test_a_file_that_is_used_is_none():
    assert findings(text()) == []
    assert findings(text(shape={"tp": 8})) == []
    assert findings(None) == []


@pytest.mark.parametrize(
    ("entry", "says", "basis"),
    [
        ({"accelerator": "h100-sxm"}, "says nothing of `chat`", "prior"),
        (
            {"shape": {"tp": 2}},
            "does not know `chat` as tp8 on mi300x, as planned: those predictions are carried from tp2, with wider",
            "carried from tp2",
        ),
        ({}, None, "calibrated"),
    ],
)
def test_a_plan_names_what_the_file_does_not_know(tmp_path, capsys, entry, says, basis):
    assert main(["init", str(tmp_path), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    (tmp_path / "mine.yaml").write_text(text(**entry))
    spec = tmp_path / "disaggc.yaml"
    spec.write_text(spec.read_text() + "calibration: mine.yaml\n")
    capsys.readouterr()
    assert main(["plan", str(spec), "--refresh=false"]) == 0
    said = capsys.readouterr()
    if says is None:
        assert "DGC209" not in said.err
    else:
        assert says in " ".join(said.err.split())
    assert f"basis: {basis})" in said.out
