"""How far levels of two shapes lie apart: the figures that plans carry measurements by come from the measured table."""

from __future__ import annotations

import json

import pytest

from disaggc.perf.carried import FILE
from tests.fidelity import kin
from tests.fidelity.__main__ import COMMITTED
from tests.fidelity.columns import asked_of
from tests.fidelity.points import read_table

H100 = ("a", "llama", "fp8", "H100", "vllm 0.12", "agg")
OTHER = ("a", "qwen", "fp8", "H100", "vllm 0.11", "agg")
ELSEWHERE = ("b", "qwen", "fp8", "H200", "vllm 0.12", "agg")


def test_pairs_are_of_one_system_and_systems_weigh_alike():
    pairs = kin.between_shapes({H100: {"tp1": 0.1, "tp2": 0.3, "tp4": 0.2}, OTHER: {"tp1": 0.0, "tp2": 0.5}})
    assert len(pairs) == 8
    assert sum(p.weight for p in pairs) == pytest.approx(2)
    assert {p.weight for p in pairs} == {1 / 6, 1 / 2}


def test_two_models_are_compared_on_one_accelerator_and_engine_alone():
    pairs = kin.between_models({H100: {"tp1": 0.1}, OTHER: {"tp1": 0.4, "tp2": 0.2}, ELSEWHERE: {"tp1": 9.0}})
    assert sorted((round(p.known, 6), round(p.other, 6)) for p in pairs) == [(0.1, 0.3), (0.3, 0.1)]


def test_the_figures_are_those_of_the_measured_table(shared_data):
    table = read_table(shared_data("data/measured/measured_dev.csv"))
    written = json.loads(FILE.read_text())
    assert written["data_sha256"] == table.sha256 == json.loads(COMMITTED.read_text())["data"]["sha256"]
    assert kin.document_of(asked_of(table.points).asked) == {k: written[k] for k in ("shapes", "models")}
