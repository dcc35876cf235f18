"""`disaggc explain --requests N`: what a run that ends would measure, beside the steady state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disaggc.cli.main import main

FIVE = Path(__file__).resolve().parents[2] / "examples" / "deepseek-r1-mi300x"


@pytest.fixture
def spec(tmp_path):
    for name in ("disaggc.yaml", "calibrated.yaml", "calibration.yaml"):
        (tmp_path / name).write_bytes((FIVE / name).read_bytes())
    return [str(tmp_path / "disaggc.yaml"), str(tmp_path / "calibrated.yaml")]


def test_a_run_of_twice_the_cap_falls_short_of_the_steady_state_as_the_report_measured(spec, capsys):
    assert main(["explain", *spec, "--requests", "960", "--format", "json"]) == 0
    reasons = json.loads(capsys.readouterr().out)["services"]["chat"]
    run, steady = reasons["run"]["predicted"], reasons["predicted"]
    assert reasons["run"]["requests"] == 960
    assert run["total_tok_per_s"]["value"] == pytest.approx(6082.84, rel=0.03)
    assert steady["total_tok_per_s"]["value"] > 1.1 * run["total_tok_per_s"]["value"]


def test_people_see_both(spec, capsys):
    assert main(["explain", *spec, "--requests", "960"]) == 0
    text = capsys.readouterr().out
    assert "a run of 960 requests" in text
    assert "steady state" in text
    assert main(["explain", *spec]) == 0
    assert "a run of" not in capsys.readouterr().out


def test_a_run_of_more_requests_than_there_can_be_is_wrong_usage(capsys):
    """In 1e20 requests those of the ramp are lost in rounding: it was 30 % faster than its own steady state."""
    assert main(["explain", "x.yaml", "--requests", "100000000000000000000"]) == 64
    assert "less than or equal to 1000000000" in capsys.readouterr().err
