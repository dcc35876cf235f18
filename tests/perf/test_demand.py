from __future__ import annotations

import pytest

from disaggc.ir.plan import Shape
from disaggc.perf.demand import demand_of, nominal_weights, steps_per_token
from disaggc.perf.predict import predict
from disaggc.resolve.model import Lengths
from tests.perf.perf_cases import bench, load, nodes, service

QWEN = "Qwen/Qwen3-32B"


def seen(*loads, shape=None, layout=(1, 1), per_node=8, **options):
    one = bench(
        QWEN,
        nodes("h100-sxm", per_node=per_node),
        shape or Shape(tp=2),
        *loads,
        max_model_len=12288,
        **options,
    )
    return predict(one.models, one.service, one.pd(*layout))


def test_a_speculative_step_yields_the_geometric_series():
    drafted = service(
        QWEN, load(concurrency=1), speculative={"method": "eagle3", "tokens": 3, "acceptance": 0.7}
    )
    assert 1 / steps_per_token(drafted) == pytest.approx(1 + 0.7 + 0.7**2 + 0.7**3)
    sure = service(QWEN, load(concurrency=1), speculative={"method": "mtp", "tokens": 2, "acceptance": 1.0})
    assert 1 / steps_per_token(sure) == 3
    assert steps_per_token(service(QWEN, load(concurrency=1))) == 1


def test_accepted_drafts_make_tokens_come_sooner():
    traffic = load(isl=512, osl=512, concurrency=16)
    plain = seen(traffic)
    drafted = seen(traffic, speculative={"method": "eagle3", "tokens": 3, "acceptance": 0.7})
    assert drafted.classes[0].itl.p50.value < 0.6 * plain.classes[0].itl.p50.value
    assert drafted.output_tok_per_s.value > 1.5 * plain.output_tok_per_s.value


def test_cached_prompt_tokens_are_neither_computed_nor_moved():
    demand = demand_of(service(QWEN, load(isl=1000, concurrency=1, prefix_hit=0.6)))[0]
    assert demand.computed(1000) == pytest.approx(400)
    assert demand.squares(1000) == pytest.approx(1000**2 - 600**2)
    cold, warm = (seen(load(isl=8192, osl=64, concurrency=4, prefix_hit=hit)) for hit in (0.0, 0.9))
    assert warm.classes[0].ttft.p50.value < 0.5 * cold.classes[0].ttft.p50.value


def test_long_answers_weigh_more_among_the_running():
    even = demand_of(service(QWEN, load(isl=100, osl=1000, concurrency=1)))[0]
    varied = demand_of(service(QWEN, load(isl=100, osl=Lengths(1000, 700, 2000, 4000, 1.0), concurrency=1)))[
        0
    ]
    assert even.context == 100 + 500
    assert varied.context == 100 + 1000


def test_the_nominal_mix_is_by_rate_or_by_what_a_cap_can_send():
    mix = demand_of(service(QWEN, load("a", rate=3.0), load("b", rate=1.0)))
    assert nominal_weights(mix) == (0.75, 0.25)
    caps = demand_of(service(QWEN, load("a", osl=100, concurrency=10), load("b", osl=300, concurrency=30)))
    assert nominal_weights(caps) == (0.5, 0.5)


def test_bursty_arrivals_wait_longer():
    calm, bursty = (seen(load(isl=4096, osl=64, rate=1.5, arrival_cv=cv)) for cv in (1.0, 4.0))
    assert bursty.classes[0].ttft.p99.value > 2 * calm.classes[0].ttft.p99.value
    assert bursty.classes[0].rate.value == calm.classes[0].rate.value


def test_varied_prompts_spread_the_first_token():
    even = seen(load(isl=4096, osl=64, rate=0.2))
    varied = seen(load(isl=Lengths(4096, 3000, 9000, 11000, 0.8), osl=64, rate=0.2))
    spread = varied.classes[0].ttft
    assert spread.p99.value / spread.p50.value > 2
    assert even.classes[0].ttft.p99.value < spread.p99.value


def test_a_pipeline_trades_latency_for_throughput_of_prompts():
    lone = load(isl=512, osl=64, concurrency=1)
    flat, deep = seen(lone, shape=Shape(tp=4)), seen(lone, shape=Shape(tp=2, pp=2))
    assert deep.classes[0].ttft.p50.value > flat.classes[0].ttft.p50.value
    many = load(isl=8192, osl=2, concurrency=512)
    thin, piped = (
        seen(many, shape=Shape(tp=2), layout=(1, 3)),
        seen(many, shape=Shape(tp=2, pp=2), layout=(1, 3)),
    )
    assert piped.classes[0].rate.value == pytest.approx(2 * thin.classes[0].rate.value, rel=0.1)


def test_transfers_inside_one_node_need_no_network():
    traffic = load(isl=8192, osl=16, rate=0.5)
    inside = seen(traffic, layout=(2, 2))
    across = seen(traffic, layout=(2, 2), per_node=4)
    assert inside.case.paths[0].transport == "link"
    assert across.case.paths[0].transport == "rdma"
    assert inside.classes[0].ttft.p50.value < across.classes[0].ttft.p50.value
