from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disaggc.ir.plan import Role, Shape
from disaggc.perf.layout import Layout, PoolLayout
from disaggc.perf.predict import hourly_cost, predict, ratio
from disaggc.resolve.model import Bound, Lengths
from tests.effort import examples
from tests.perf.perf_cases import bench, exact, load, moreh, nodes

R1 = "deepseek-ai/DeepSeek-R1"
QWEN = "Qwen/Qwen3-32B"
TP8 = Shape(tp=8)


def seen(one, layout):
    return predict(one.models, one.service, layout)


def small(*loads, **options):
    """Qwen3-32B at TP2 on one node group of H100: four replicas a node."""
    return bench(QWEN, nodes("h100-sxm"), Shape(tp=2), *loads, max_model_len=12288, **options)


# --- the MI300X report -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [Shape(tp=8), Shape(tp=4, dp=2, ep=8), Shape(tp=1, dp=8, ep=8)])
def test_four_decode_nodes_beat_three_on_long_outputs_and_the_report_lies_in_the_range(shape):
    one = moreh(1024, 8192, 480, 2.0, shape=shape)
    first, second = seen(one, one.pd(1, 4)), seen(one, one.pd(2, 3))
    found = ratio(first, second, "total_tok_per_s")
    assert found.value > 1
    assert found.low < 6082.84 / 5668.40 < found.high


def test_the_range_of_a_ratio_is_much_narrower_than_the_quotient_of_the_ranges():
    one = moreh(1024, 8192, 480, 2.0)
    first, second = seen(one, one.pd(1, 4)), seen(one, one.pd(2, 3))
    found = ratio(first, second, "total_tok_per_s")
    apart = first.total_tok_per_s.high / second.total_tok_per_s.low
    assert found.high - found.low < 0.2 * (apart - 1)


def test_a_layout_is_exactly_as_good_as_itself():
    one = moreh(1024, 8192, 480, 2.0)
    first, again = seen(one, one.pd(2, 3)), seen(one, one.pd(2, 3))
    for metric in ("total_tok_per_s", "tokens_per_cost", "ttft", "itl", "e2e"):
        found = ratio(first, again, metric)
        assert (found.low, found.value, found.high) == (1, 1, 1)


def test_the_ratio_of_two_swapped_layouts_is_the_inverse():
    one = moreh(8192, 1024, 160, 2.0)
    first, second = seen(one, one.pd(1, 4)), seen(one, one.pd(2, 3))
    assert ratio(first, second, "e2e").value == pytest.approx(1 / ratio(second, first, "e2e").value)


# --- closed forms ------------------------------------------------------------------------------------------------


def test_a_closed_loop_holds_littles_law():
    one = small(load(isl=2048, osl=512, concurrency=64))
    point = seen(one, one.pd(2, 4)).case.at_corner(1)
    steady = point.steady
    running = steady.batches[0] * 4
    assert running == pytest.approx(steady.rates[0] * 512 * steady.step_s, rel=1e-3)
    # what is not in decode waits for prefill, is computed or is moved
    before = steady.rates[0] * (point.classes[0].ttft[0] - steady.step_s)
    assert running + before == pytest.approx(64, rel=0.05)


def test_an_open_loop_serves_what_is_offered():
    found = seen(small(load(isl=2048, osl=256, rate=3)), small(load()).pd(2, 2))
    assert found.classes[0].rate.value == pytest.approx(3)
    assert found.output_tok_per_s.value == pytest.approx(3 * 256)
    assert found.total_tok_per_s.value == pytest.approx(3 * (256 + 2048))
    assert found.bottleneck == "rate"


def test_a_client_that_holds_back_sees_the_closed_loop():
    capped = small(load(isl=2048, osl=256, rate=1000, concurrency=32))
    closed = small(load(isl=2048, osl=256, concurrency=32))
    first, second = seen(capped, capped.pd(2, 2)), seen(closed, closed.pd(2, 2))
    assert first.classes[0].rate.value == pytest.approx(second.classes[0].rate.value, rel=1e-3)
    assert first.classes[0].ttft.p50.value == pytest.approx(second.classes[0].ttft.p50.value, rel=1e-2)
    assert first.bottleneck == "concurrency"


def test_a_generous_cap_changes_nothing():
    capped = small(load(isl=2048, osl=256, rate=3, concurrency=10_000))
    free = small(load(isl=2048, osl=256, rate=3))
    first, second = seen(capped, capped.pd(2, 2)), seen(free, free.pd(2, 2))
    assert first.classes[0].e2e.p50.value == pytest.approx(second.classes[0].e2e.p50.value, rel=1e-3)


def test_one_request_at_a_time_never_waits():
    found = (
        seen(small(load(isl=4096, osl=64, concurrency=1)), small(load()).pd(1, 1)).case.at_corner(1).steady
    )
    assert found.wait_s == 0
    assert found.batches[0] < 1


def test_an_overload_is_reported_as_what_it_is():
    one = small(load(isl=8192, osl=64, rate=1000, bounds=(Bound("ttft", 50, 5.0),)))
    found = seen(one, one.pd(1, 3))
    assert found.bottleneck == "prefill"
    assert found.classes[0].rate.value < 100
    assert found.utilisation["prefill"] > 0.99
    assert [(v.bound.metric, v.certain) for v in found.violations] == [("ttft", True)]
    assert not found.meets_objectives
    assert found.classes[0].e2e.p50.value > 60


def test_decode_that_is_full_binds_and_its_callers_wait():
    one = small(load(isl=256, osl=2048, concurrency=4000))
    found = seen(one, one.pd(3, 1))
    assert found.bottleneck in {"decode", "kv-memory"}
    assert found.utilisation["decode"] == 1
    assert found.classes[0].ttft.p50.value > 10
    limited = Layout("disaggregated", tuple(replace(p, max_seqs=16) for p in one.pd(3, 1).pools))
    assert seen(one, limited).bottleneck == "decode"
    assert seen(one, limited).batches[1] == 16


def test_a_slow_network_binds():
    one = bench(
        QWEN,
        nodes("h100-sxm", nics=1, gbit=1),
        Shape(tp=2),
        load(isl=8000, osl=16, rate=100),
        max_model_len=12288,
    )
    assert seen(one, one.pd(8, 4)).bottleneck == "kv-transfer"


# --- several classes, several pools ------------------------------------------------------------------------------


def test_classes_share_the_pools_and_see_their_own_latencies():
    chat, rag = load("chat", isl=512, osl=512, concurrency=32), load("rag", isl=8192, osl=128, rate=2)
    one = small(chat, rag)
    found = seen(one, one.pd(2, 4))
    by_name = {c.name: c for c in found.classes}
    assert by_name["rag"].rate.value == pytest.approx(2)
    assert by_name["rag"].ttft.p50.value > 3 * by_name["chat"].ttft.p50.value
    alone = small(chat)
    assert by_name["chat"].rate.value < seen(alone, alone.pd(2, 4)).classes[0].rate.value


def test_a_class_split_in_two_equal_ones_changes_nothing():
    whole = small(load("a", isl=1024, osl=512, concurrency=64))
    halves = small(load("a", isl=1024, osl=512, concurrency=32), load("b", isl=1024, osl=512, concurrency=32))
    first, second = seen(whole, whole.pd(2, 4)), seen(halves, halves.pd(2, 4))
    assert second.output_tok_per_s.value == pytest.approx(first.output_tok_per_s.value, rel=1e-3)
    assert second.classes[0].e2e.p50.value == pytest.approx(first.classes[0].e2e.p50.value, rel=1e-2)


@pytest.mark.parametrize("mode", ["disaggregated", "colocated"])
def test_a_pool_split_in_two_equal_ones_changes_nothing(mode):
    one = small(load(isl=1024, osl=512, concurrency=64))
    whole = one.pd(2, 4) if mode == "disaggregated" else one.colocated(6)
    halves = Layout(mode, tuple(replace(p, replicas=p.replicas // 2) for p in whole.pools for _ in range(2)))
    first, second = seen(one, whole), seen(one, halves)
    assert second.output_tok_per_s.value == pytest.approx(first.output_tok_per_s.value, rel=1e-3)
    assert second.classes[0].ttft.p99.value == pytest.approx(first.classes[0].ttft.p99.value, rel=1e-2)


def test_pools_on_different_accelerators_add_up():
    one = small(load(isl=1024, osl=512, concurrency=512))
    fast = nodes("h200", name="fast")
    mixed = Layout(
        "disaggregated",
        (
            *one.pd(2, 2).pools,
            PoolLayout(Role.DECODE, fast, Shape(tp=2), 2),
        ),
    )
    assert (
        seen(one, one.pd(2, 2)).output_tok_per_s.value
        < seen(one, mixed).output_tok_per_s.value
        < seen(one, one.pd(2, 2)).output_tok_per_s.value * 3
    )


# --- colocated ---------------------------------------------------------------------------------------------------


def test_the_p99_of_a_colocated_itl_jumps_where_one_step_in_a_hundred_is_stalled():
    def itl(rate):
        one = small(load(isl=4096, osl=64, rate=rate))
        found = seen(one, one.colocated(1)).case.at_corner(1)
        return found.classes[0].itl, found.steady.rates[0] * found.steady.step_s

    quiet, share = itl(0.2)
    assert share < 0.01
    assert quiet[2] < 1.2 * quiet[0]
    busy, share = itl(2.0)
    assert share > 0.01
    assert busy[2] > 5 * busy[0]


def test_a_decode_pool_never_stalls_on_prompts():
    one = small(load(isl=4096, osl=64, rate=2))
    itl = seen(one, one.pd(1, 1)).classes[0].itl
    assert itl.p99.value < 1.5 * itl.p50.value


def test_only_a_calibration_file_makes_a_colocated_step_slower_than_the_same_decode_step():
    text = """
version: 1
provenance: {tool: test}
entries: [{model: Qwen/Qwen3-32B, accelerator: h100-sxm, constants: {kappa: 1.5}}]
"""
    traffic = load(isl=64, osl=2048, concurrency=64)
    plain, slowed = small(traffic), small(traffic, calibration=text)
    first, second = seen(plain, plain.colocated(4)), seen(slowed, slowed.colocated(4))
    assert second.classes[0].itl.p50.value == pytest.approx(1.5 * first.classes[0].itl.p50.value, rel=0.02)
    assert second.output_tok_per_s.basis == "calibrated"
    same = seen(slowed, slowed.pd(1, 4)).classes[0].itl.p50.value
    assert same == pytest.approx(seen(plain, plain.pd(1, 4)).classes[0].itl.p50.value, rel=0.01)


# --- what cannot run, what it costs ------------------------------------------------------------------------------


def test_a_layout_that_does_not_fit_says_why_and_loses_every_comparison():
    one = bench("meta-llama/Llama-3.1-70B", nodes("h100-sxm"), Shape(tp=1), load(concurrency=8))
    found = seen(one, one.pd(1, 1))
    assert found.bottleneck == "memory"
    assert "exceed" in found.reasons[0]
    assert not found.meets_objectives
    fits = seen(one, one.pd(1, 1, Shape(tp=4)))
    assert ratio(found, fits, "total_tok_per_s").value == 0
    assert ratio(fits, found, "total_tok_per_s").value == math.inf


def test_a_layout_without_a_role_cannot_serve():
    one = small(load())
    assert seen(one, one.pd(0, 2)).reasons == ("no prefill replica",)


def test_cost_counts_whole_nodes():
    one = small(load(concurrency=32))
    assert hourly_cost(one.pd(1, 3)) == (24.0, "USD")
    assert hourly_cost(one.pd(2, 3)) == (48.0, "USD")
    assert hourly_cost(
        Layout("colocated", (PoolLayout(Role.COLOCATED, nodes("h200", price=None), TP8, 1),))
    ) == (
        None,
        None,
    )
    found = seen(one, one.pd(1, 3))
    assert found.tokens_per_cost.value == pytest.approx(found.total_tok_per_s.value * 3600 / 24)


# --- laws --------------------------------------------------------------------------------------------------------

TRAFFIC = st.builds(
    lambda isl, osl, cap, cv: load(
        isl=Lengths(isl, isl, isl * (1 + cv), isl * (1 + 2 * cv), cv), osl=exact(osl), concurrency=cap
    ),
    st.integers(16, 4096),
    st.integers(16, 2048),
    st.integers(1, 2000),
    st.floats(0, 1),
)


CROWD = load(isl=Lengths(3597, 3597, 5325.24609375, 7053.4921875, 0.48046875), osl=exact(16), concurrency=264)
"""Alone it would offer a hundred times what prefill serves."""


@settings(max_examples=examples(40))
@given(TRAFFIC, st.integers(1, 6), st.integers(1, 6))
@example(CROWD, 1, 3)
def test_one_more_replica_of_either_role_never_serves_less(traffic, prefill, decode):
    # two accelerators a node: nothing is gained or lost by leaving a node
    one = bench(QWEN, nodes("h100-sxm", per_node=2), Shape(tp=2), traffic, max_model_len=12288)
    base = seen(one, one.pd(prefill, decode)).output_tok_per_s.value
    for layout in (one.pd(prefill + 1, decode), one.pd(prefill, decode + 1)):
        assert seen(one, layout).output_tok_per_s.value >= base * (1 - 1e-3)
    together = seen(one, one.colocated(prefill)).output_tok_per_s.value
    assert seen(one, one.colocated(prefill + 1)).output_tok_per_s.value >= together * (1 - 1e-3)


@settings(max_examples=examples(40))
@given(TRAFFIC, st.integers(1, 4), st.integers(1, 4))
def test_every_number_lies_in_its_range_and_percentiles_are_ordered(traffic, prefill, decode):
    one = small(traffic)
    for layout in (one.pd(prefill, decode), one.colocated(decode)):
        found = seen(one, layout)
        outcome = found.classes[0]
        numbers = [found.output_tok_per_s, found.total_tok_per_s, outcome.rate]
        for latency in (outcome.ttft, outcome.itl, outcome.e2e):
            numbers += [latency.p50, latency.p90, latency.p99]
            assert latency.p50.value <= latency.p90.value * (1 + 1e-9) <= latency.p99.value * (1 + 1e-9)
        for number in numbers:
            assert 0 < number.low <= number.value <= number.high < math.inf
        assert outcome.e2e.p50.value > outcome.ttft.p50.value
        assert all(0 <= share <= 1 for share in found.utilisation.values())


@settings(max_examples=examples(40))
@given(TRAFFIC, st.integers(1, 1000))
def test_a_larger_cap_never_serves_less(traffic, more):
    one = small(traffic)
    larger = small(replace(traffic, concurrency=traffic.concurrency + more))
    first, second = seen(one, one.pd(2, 3)), seen(larger, larger.pd(2, 3))
    assert second.output_tok_per_s.value >= first.output_tok_per_s.value * (1 - 1e-3)


@settings(max_examples=examples(40))
@given(st.floats(0.1, 50), st.floats(0.1, 50))
def test_more_traffic_never_makes_anything_faster(first, second):
    low, high = sorted((first, second))
    calm, busy = (small(load(isl=2048, osl=256, rate=rate)) for rate in (low, high))
    a, b = seen(calm, calm.pd(2, 3)).classes[0], seen(busy, busy.pd(2, 3)).classes[0]
    assert a.ttft.p90.value <= b.ttft.p90.value * (1 + 1e-3)
    assert a.itl.p50.value <= b.itl.p50.value * (1 + 1e-3)
    assert a.rate.value <= b.rate.value * (1 + 1e-3)


def test_the_same_question_has_the_same_answer():
    one = small(load(isl=2048, osl=256, concurrency=77))
    assert seen(one, one.pd(2, 3)) == seen(one, one.pd(2, 3))
    assert ratio(seen(one, one.pd(2, 3)), seen(one, one.pd(3, 2)), "ttft") == ratio(
        seen(one, one.pd(2, 3)), seen(one, one.pd(3, 2)), "ttft"
    )


def test_a_full_prefill_pool_is_found_to_be_equally_full_under_any_crowd():
    """Close to saturation the wait changes a thousand times faster than the load."""
    isl = Lengths(335, 335, 413, 492, 0.234)
    served = []
    for cap in (900, 1200, 1500, 5000):
        one = small(load(isl=isl, osl=120, concurrency=cap))
        served.append(seen(one, one.pd(2, 3)).classes[0].rate.value)
    assert all(more >= less * (1 - 1e-6) for less, more in pairwise(served))
    assert served[-1] == pytest.approx(served[0], rel=2e-3)
