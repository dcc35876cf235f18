"""A run that ends: its closed form against the event simulator, against arithmetic and against the steady state."""

from __future__ import annotations

import pytest

from disaggc.ir.plan import Shape
from disaggc.perf.events.lengths import Fixed
from disaggc.perf.events.load import Load, Stream
from disaggc.perf.events.simulate import simulate
from disaggc.perf.predict import predict
from tests.perf.perf_cases import bench, load, nodes

QWEN = "Qwen/Qwen3-32B"


def small(*loads):
    return bench(QWEN, nodes("h100-sxm"), Shape(tp=2), *loads, max_model_len=12288)


def layouts(one):
    return {"2P2D": one.pd(2, 2), "1P3D": one.pd(1, 3), "colocated": one.colocated(4)}


@pytest.mark.parametrize(
    ("isl", "osl", "cap", "rate"), [(1024, 1024, 96, 12.0), (512, 2048, 64, 4.0), (4096, 512, 64, 2.5)]
)
@pytest.mark.parametrize("kind", ["2P2D", "1P3D", "colocated"])
@pytest.mark.parametrize("waves", [2, 6])
def test_throughput_of_a_run_is_the_simulators(isl, osl, cap, rate, kind, waves):
    one = small(load(isl=isl, osl=osl, rate=rate, concurrency=cap))
    layout = layouts(one)[kind]
    said = predict(one.models, one.service, layout, requests=waves * cap)
    stream = Stream("main", waves * cap, Fixed(isl), Fixed(osl), rate=rate, cap=float(cap))
    seen = [
        simulate(one.models, one.service, layout, load=Load((stream,)), seed=seed).whole.total_tok_per_s
        for seed in (1, 2, 3)
    ]
    assert said.total_tok_per_s.value == pytest.approx(sum(seen) / 3, rel=0.06)


def test_a_rush_is_served_one_after_the_other_and_the_last_waits_for_all():
    """All requests start at once and none follows: the median waits for half of them, P99 for almost all."""
    one = small(load(isl=4096, osl=64, concurrency=64))
    rush = predict(one.models, one.service, one.pd(1, 1), requests=64)
    found = rush.classes[0].ttft
    prefill = rush.case.prefill[0]
    times = rush.case.times(prefill)[1]
    each = times.prefill(4096, 4096.0**2, 4096 / prefill.fit.max_num_batched_tokens)
    assert found.p99.value == pytest.approx(63 * each, rel=0.08)
    assert found.p50.value == pytest.approx(32 * each, rel=0.15)


def test_the_longer_the_run_the_nearer_the_steady_state():
    one = small(load(isl=1024, osl=512, rate=20.0, concurrency=64))
    layout = one.pd(2, 2)
    steady = predict(one.models, one.service, layout).output_tok_per_s.value
    shares = [
        predict(one.models, one.service, layout, requests=n).output_tok_per_s.value / steady
        for n in (64, 128, 640, 6400, 64000)
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.8
    assert shares[-1] == pytest.approx(1, abs=0.02)


def test_more_than_twice_the_requests_take_more_time():
    one = small(load(isl=1024, osl=512, concurrency=32))
    times = []
    for requests in (33, 64, 96, 320):
        seen = predict(one.models, one.service, one.colocated(2), requests=requests)
        times.append(requests / seen.classes[0].rate.value)
    assert times == sorted(times)


def test_two_classes_share_a_run_as_they_share_the_traffic():
    one = small(
        load("short", isl=256, osl=256, rate=4.0, concurrency=200),
        load("long", isl=4096, osl=512, rate=1.0, concurrency=200),
    )
    seen = predict(one.models, one.service, one.pd(2, 2), requests=2000)
    short, long = seen.classes
    assert short.rate.value == pytest.approx(4 * long.rate.value, rel=0.05)
    assert long.ttft.p50.value > short.ttft.p50.value
