"""Stretched ranges: closed sides stay closed, wide sides do not explode, and the shipped factors are what plans use."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.plan import Shape
from disaggc.perf.estimate import Basis
from disaggc.perf.predict import predict
from disaggc.perf.spread import FILE, LEAST, MEASURES, WIDE, Stretch, factor_for, side, stretches
from tests.perf.perf_cases import bench, load, nodes


def test_every_measure_has_factors_with_the_sources_they_come_from():
    document = json.loads(FILE.read_text())
    assert document["written_by"] == "python -m tests.fidelity --spread"
    for basis in ("prior", "calibrated"):
        for measure in MEASURES:
            found = document[basis]["all"][measure]
            assert min(found["below"], found["above"]) >= 1
            assert len(found["sources"]) >= 2
            for source, others in document[basis]["without"].items():
                assert source not in others[measure]["sources"]


def test_a_source_is_judged_by_factors_that_have_not_seen_it():
    assert stretches(Basis.PRIOR, "inferencex_token_position") != stretches(Basis.PRIOR)
    assert stretches(Basis.PRIOR, "nobody") == stretches(Basis.PRIOR)


@given(st.floats(0.01, 100), st.floats(0, 3), st.floats(0, 3), st.floats(1, 4), st.floats(1, 4))
def test_a_stretched_range_holds_the_plain_one(value, down, up, below, above):
    low, high = Stretch(below, above).applied(value, value * math.exp(-down), value * math.exp(up))
    assert low <= value * math.exp(-down) * (1 + 1e-9)
    assert high >= value * math.exp(up) * (1 - 1e-9)
    assert math.log(high / value) <= max(up, LEAST) + 3 * WIDE + 1e-9


def test_what_is_offered_stays_the_most_that_is_served():
    one = bench(
        "Qwen/Qwen3-32B", nodes("h100-sxm"), Shape(tp=2), load(isl=512, osl=128, rate=2.0), max_model_len=4096
    )
    rate = predict(one.models, one.service, one.pd(2, 2)).classes[0].rate
    assert rate.value == pytest.approx(2.0)
    assert rate.high == pytest.approx(2.0)


@given(st.floats(LEAST, 5), st.floats(0.001, 6))
def test_the_factor_for_a_miss_is_the_one_that_just_holds_it(width, miss):
    factor = factor_for(width, miss)
    if factor >= 1:
        _, high = Stretch(1.0, factor).applied(1.0, 1.0, math.exp(width))
        assert math.log(high) == pytest.approx(miss, rel=1e-6)
    else:
        assert miss < width


def test_a_side_is_never_narrower_than_two_equal_runs():
    assert side(1.0, 1.0) == 0
    assert side(1.001, 1.0) == LEAST
    assert side(2.0, 1.0) == pytest.approx(math.log(2))
