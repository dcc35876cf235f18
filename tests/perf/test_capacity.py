from __future__ import annotations

import pytest

from disaggc.ir.plan import Role, Shape
from disaggc.perf.capacity import Candidate, capacity, operating_points
from disaggc.perf.expectation import expectation, plan_memory
from disaggc.perf.predict import predict
from disaggc.perf.thresholds import break_even_tokens, doubling_rate
from disaggc.resolve.model import Bound
from tests.perf.perf_cases import bench, load, moreh, nodes

QWEN = "Qwen/Qwen3-32B"
TP2 = Shape(tp=2)


def small(*loads):
    return bench(QWEN, nodes("h100-sxm"), TP2, *loads, max_model_len=12288)


def at(one, role, batch=None, pool=1):
    return capacity(one.models, one.service, Candidate(role, one.group, one.shape, pool), batch=batch)


def test_decode_yields_its_batch_over_the_time_of_a_request():
    one = small(load(isl=1024, osl=512, concurrency=64))
    found = at(one, Role.DECODE, 32)
    assert found.feasible
    assert found.rate.value == pytest.approx(32 / (512 * found.step_s.value))
    assert found.rate.low < found.rate.value < found.rate.high


def test_a_decode_replica_in_a_layout_runs_at_its_capacity():
    """The linear model and the fixed point say the same at the same batch."""
    one = small(load(isl=512, osl=1024, concurrency=120))
    found = predict(one.models, one.service, one.pd(2, 3))
    rate = at(one, Role.DECODE, found.batches[1]).rate.value
    assert 3 * rate == pytest.approx(found.classes[0].rate.value, rel=1e-3)


def test_a_colocated_replica_in_a_layout_runs_at_its_capacity():
    one = small(load(isl=512, osl=1024, concurrency=120))
    found = predict(one.models, one.service, one.colocated(3))
    rate = at(one, Role.COLOCATED, 40).rate.value
    assert 3 * rate == pytest.approx(found.classes[0].rate.value, rel=0.02)


def test_more_sequences_yield_more_until_an_objective_breaks():
    one = small(load(isl=1024, osl=512, concurrency=64, bounds=(Bound("itl", 99, 0.02),)))
    few, many = at(one, Role.DECODE, 4), at(one, Role.DECODE, 80)
    assert many.rate.value > few.rate.value
    assert few.feasible
    assert not many.feasible
    assert many.reasons == (f"`itl_p99` of `main` is {many.step_s.value * 1000:.1f} ms, 20.0 ms allowed",)


def test_a_batch_beyond_memory_is_refused():
    one = small(load(isl=8000, osl=2000, concurrency=64))
    found = at(one, Role.DECODE, 5000)
    assert not found.feasible
    assert "exceed" in found.reasons[0]
    assert found.rate.value == 0


def test_a_tighter_first_token_leaves_less_prefill():
    def rate(limit):
        return at(small(load(isl=4096, osl=64, rate=1, bounds=(Bound("ttft", 90, limit),))), Role.PREFILL)

    loose, tight, never = rate(10.0), rate(1.0), rate(0.01)
    assert loose.rate.value > tight.rate.value > 0
    assert not never.feasible
    assert never.rate.value == 0


def test_prefill_at_its_capacity_just_keeps_the_objective():
    bound = Bound("ttft", 90, 1.0)
    limit = at(small(load(isl=4096, osl=64, rate=1, bounds=(bound,))), Role.PREFILL, pool=2).rate.value
    for share, kept in ((0.97, True), (1.03, False)):
        one = small(load(isl=4096, osl=64, rate=2 * limit * share, bounds=(bound,)))
        layout = one.pd(2, 30)
        step = predict(one.models, one.service, layout).case.at_corner(1).steady.step_s
        ttft = predict(one.models, one.service, layout).classes[0].ttft.p90.value - step
        assert (ttft <= bound.limit_s) is kept


def test_a_shared_queue_carries_more_than_lonely_replicas():
    one = small(load(isl=4096, osl=64, rate=1, bounds=(Bound("ttft", 99, 1.0),)))
    assert at(one, Role.PREFILL, pool=8).rate.value > at(one, Role.PREFILL, pool=1).rate.value


def test_operating_points_hold_the_caps_share_and_the_memorys_limit():
    one = small(load(isl=1024, osl=512, concurrency=64))
    candidate = Candidate(Role.DECODE, one.group, one.shape)
    points = operating_points(one.models, one.service, candidate, replicas=4)
    assert {64, 32, 16, round(64 / 3, 3)} <= set(points)
    assert points == tuple(sorted(points))
    assert max(points) == one.models.memory(one.service, one.group, Role.DECODE, shape=TP2).replica_sequences
    prefill = Candidate(Role.PREFILL, one.group, one.shape)
    assert operating_points(one.models, one.service, prefill, replicas=4) == ()


def test_the_rate_at_which_one_prefill_node_becomes_two():
    one = moreh(8192, 1024, 160, 2.0)
    found = doubling_rate(one.models, one.service, one.pd(1, 4))
    assert found.low < found.value < found.high
    assert doubling_rate(one.models, one.service, one.pd(2, 3)).value == pytest.approx(
        2 * found.value, rel=0.01
    )
    assert doubling_rate(one.models, one.service, one.colocated(5)) is None
    # just below it one node keeps up, just above it does not
    for share, kept in ((0.97, True), (1.03, False)):
        there = moreh(8192, 1024, 100_000, found.value * share)
        served = predict(there.models, there.service, there.pd(1, 4)).classes[0].rate.value
        assert (served > 0.999 * found.value * share) is kept


def test_short_prompts_are_computed_where_they_are_decoded():
    def tokens(limit, **network):
        traffic = load(isl=8192, osl=1024, rate=2, concurrency=160, bounds=(Bound("itl", 99, limit),))
        one = bench("deepseek-ai/DeepSeek-R1", nodes("mi300x", **network), Shape(tp=8), traffic)
        return break_even_tokens(one.service, predict(one.models, one.service, one.pd(2, 3)))

    assert tokens(0.2, nics=1, gbit=1) > tokens(0.2)
    assert tokens(0.2, nics=1, gbit=1) > tokens(0.05, nics=1, gbit=1) >= 16
    together = moreh(8192, 1024, 160, 2.0)
    found = predict(together.models, together.service, together.colocated(5))
    assert break_even_tokens(together.service, found) == 0


def test_the_plan_carries_milliseconds_ranges_and_basis():
    one = small(load(isl=1024, osl=512, concurrency=64))
    prediction = predict(one.models, one.service, one.pd(2, 2))
    found = expectation(prediction)
    ttft = prediction.classes[0].ttft.p90
    assert found.classes["main"].ttft_ms.p90.value == pytest.approx(ttft.value * 1000, rel=1e-5)
    assert found.classes["main"].ttft_ms.p90.high == pytest.approx(ttft.high * 1000, rel=1e-5)
    assert found.output_tok_per_s.basis == "prior"
    assert found.currency == "USD"
    assert found.bottleneck == "concurrency"
    assert found.meets_objectives
    assert set(found.utilisation) == {"prefill", "decode"}


def test_the_plans_memory_is_the_fits():
    one = small(load(isl=1024, osl=512, concurrency=64))
    fit = one.models.memory(one.service, one.group, Role.DECODE, shape=TP2)
    memory = plan_memory(fit)
    assert memory.sequences == fit.max_num_seqs
    assert memory.kv_tokens <= memory.kv_tokens_high
    assert (
        memory.weights + memory.overhead_high + memory.kv_tokens * memory.kv_bytes_per_token <= memory.usable
    )
