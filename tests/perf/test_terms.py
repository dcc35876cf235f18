"""The terms of a prediction add up to the very numbers that it states."""

from __future__ import annotations

from dataclasses import replace

import pytest

from disaggc.ir.plan import Shape
from disaggc.perf.predict import predict
from disaggc.perf.terms import terms_of
from tests.perf.perf_cases import bench, load, moreh, nodes

LINE = """
version: 1
provenance: {tool: test}
entries:
  - model: deepseek-ai/DeepSeek-R1
    accelerator: mi300x
    constants:
      decode_fixed_s: 0.012
      decode_per_sequence_s: 1.1e-4
      decode_per_token_s: 3.0e-8
      step_miss: [0.9, 1.0, 1.1]
      prefill_s: 0.03
      prefill_per_token_s: 4.0e-5
      prefill_per_square_s: 2.0e-9
"""
LEVEL = """
version: 1
provenance: {tool: test}
entries:
  - model: deepseek-ai/DeepSeek-R1
    accelerator: mi300x
    constants: {step_miss: [1.1, 1.3, 1.5], batch_slope: [0.0, 0.1, 0.2], prompt_miss: 1.2}
"""


def asked(traffic, calibration):
    isl, osl, concurrency, rate = traffic
    first = load(isl=isl, osl=osl, rate=rate, concurrency=concurrency)
    return bench("deepseek-ai/DeepSeek-R1", nodes("mi300x"), Shape(tp=8), first, calibration=calibration)


def layouts(one):
    return {"1P4D": one.pd(1, 4), "4P1D": one.pd(4, 1), "colocated": one.colocated(5)}


@pytest.mark.parametrize("calibration", [None, LINE, LEVEL])
@pytest.mark.parametrize("layout", ["1P4D", "4P1D", "colocated"])
@pytest.mark.parametrize("traffic", [(1024, 8192, 480, 2.0), (8192, 1024, 160, 4.0), (64, 256, None, 1.0)])
def test_terms_add_up_to_what_is_predicted(traffic, layout, calibration):
    one = asked(traffic, calibration)
    second = load(isl=2000, osl=400, rate=0.5, name="other")
    for classes in (one.service.classes, (*one.service.classes, second)):
        service = replace(one.service, classes=classes)
        said = predict(one.models, service, layouts(one)[layout])
        terms = terms_of(said)
        for outcome, found in zip(said.classes, terms.classes, strict=True):
            assert found.name == outcome.name
            for latency, parts in (
                (outcome.ttft, found.ttft),
                (outcome.itl, found.itl),
                (outcome.e2e, found.e2e),
            ):
                assert sum(p.value for p in parts) == pytest.approx(latency.p50.value, rel=1e-9)
                assert min(p.value for p in parts) >= -1e-12
            beyond = sum(p.value**2 for p in found.ttft_tail) ** 0.5
            assert beyond == pytest.approx(
                outcome.ttft.p99.value - outcome.ttft.p50.value, rel=1e-6, abs=1e-12
            )
            tail = sum(p.value for p in found.itl_tail)
            assert tail == pytest.approx(outcome.itl.p99.value - outcome.itl.p50.value, rel=1e-6, abs=1e-12)
        assert sum(p.tok_per_s for p in terms.output) == pytest.approx(said.output_tok_per_s.value)
        assert terms.served_per_s == pytest.approx(sum(c.rate.value for c in said.classes))


def test_one_pool_makes_a_token_of_each_sequence_in_a_step():
    one = moreh(1024, 8192, 480, 2.0)
    (pool,) = terms_of(predict(one.models, one.service, one.pd(1, 4))).output
    assert pool.replicas * pool.batch / pool.step_s == pytest.approx(pool.tok_per_s, rel=1e-3)


def test_no_station_serves_more_than_it_could_and_the_full_one_limits():
    one = moreh(8192, 1024, 400, 100.0)
    terms = terms_of(predict(one.models, one.service, one.pd(1, 4)))
    stations = {s.name: s for s in terms.stations}
    assert set(stations) == {"prefill", "network", "decode"}
    assert all(s.requests_per_s >= terms.served_per_s * 0.999 for s in stations.values())
    assert min(stations.values(), key=lambda s: s.requests_per_s).name == "prefill"
    assert stations["prefill"].load > 0.9


def test_a_layout_that_cannot_run_has_no_terms():
    one = moreh(1024, 8192, 480, 2.0)
    assert terms_of(predict(one.models, one.service, one.pd(1, 0))) is None
