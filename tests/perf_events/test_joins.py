"""A step that takes up fetched prompts takes longer, that step alone, and everyone in it waits for it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from disaggc.ir.plan import Shape
from disaggc.perf.constants import exactly
from disaggc.perf.engine_model import EngineModel
from disaggc.perf.events import Load, simulate
from disaggc.perf.predict import predict
from tests.perf.perf_cases import bench, load, nodes
from tests.perf_events.parts import Formula, decode_engine, flight, run

STEP, JOIN, TOKEN = 0.010, 0.004, 1e-5


def engine(**costs):
    return decode_engine(Formula(lambda _b, _c: STEP, **costs))


def test_the_step_that_takes_a_prompt_up_is_longer_and_no_other():
    calendar, desk, one = engine(join_s=JOIN, join_token_s=TOKEN)
    first, second = flight(100, 50), flight(200, 20)
    calendar.enter(0.0, lambda now, f: one.offer(f, now), first)
    calendar.enter(0.1, lambda now, f: one.offer(f, now), second)
    run(calendar)
    stalls = [JOIN + TOKEN * f.isl for f in (first, second)]
    assert first.first_s == pytest.approx(STEP + stalls[0])
    assert desk.finished_at[first] == pytest.approx(50 * STEP + sum(stalls))
    # it came in the middle of a step: up to its end, then a step with the stall
    boundary = stalls[0] + math.ceil((0.1 - stalls[0]) / STEP - 1e-9) * STEP
    assert second.first_s == pytest.approx(boundary + STEP + stalls[1])
    assert desk.finished_at[second] == pytest.approx(second.first_s + 19 * STEP)


def test_prompts_that_come_together_are_taken_up_by_one_step():
    calendar, desk, one = engine(join_s=JOIN)
    many = [flight(100, 10) for _ in range(3)]
    for each in many:
        calendar.enter(0.0, lambda now, f: one.offer(f, now), each)
    run(calendar)
    ends = {desk.finished_at[f] for f in many}
    assert max(ends) - min(ends) < 2 * STEP
    assert max(ends) == pytest.approx(10 * STEP + 3 * JOIN, abs=STEP)


def test_intervals_hold_the_stall_once_for_everyone_who_was_there():
    calendar, _, one = engine(join_s=JOIN)
    old, new = flight(100, 101), flight(100, 1)
    calendar.enter(0.0, lambda now, f: one.offer(f, now), old)
    calendar.enter(0.5, lambda now, f: one.offer(f, now), new)
    end = run(calendar)
    one.settle(end)
    seen = one.batch.itl[0]
    assert seen.count == pytest.approx(100)
    assert seen.total == pytest.approx(100 * STEP + JOIN)
    assert seen.quantile(0.5) == pytest.approx(STEP, rel=0.01)
    assert seen.quantile(0.995) == pytest.approx(STEP + JOIN, rel=0.01)


def test_a_replica_that_ends_gives_back_those_that_were_about_to_join():
    calendar, desk, one = engine(join_s=JOIN)
    first, second = flight(100, 50), flight(100, 50)
    calendar.enter(0.0, lambda now, f: one.offer(f, now), first)
    calendar.enter(0.105, lambda now, f: one.offer(f, now), second)
    held = []
    calendar.enter(0.107, lambda now, _f: held.extend(one.clear(now)))
    run(calendar)
    assert set(held) == {first, second}
    assert one.kv_used == 0
    assert not desk.finished_at


@pytest.mark.parametrize(("rate", "stalled"), [(4.0, True), (0.05, False)])
def test_the_tail_of_token_intervals_is_the_plan_s(rate, stalled):
    """Above one step in a hundred that takes a prompt up the P99 holds the stall, below it does not: in both."""
    one = bench(
        "Qwen/Qwen3-32B",
        nodes("h100-sxm"),
        Shape(tp=4),
        load(isl=4096, osl=256, rate=rate),
        max_model_len=12288,
    )
    group, shape = one.group, one.shape
    plain = one.models.engine(one.service, group, shape)
    sure = replace(plain.constants, join_s=exactly(0.02), join_token_s=exactly(0.0))
    one.models._engines[one.service.name, group.name, shape] = EngineModel(plain.work, sure)
    layout = one.pd(2, 1)
    said = predict(one.models, one.service, layout).case.at_corner(1).classes[0].itl
    seen = simulate(one.models, one.service, layout, load=Load.of_service(one.service, 2000))
    assert (seen.classes[0].itl.p99 > seen.classes[0].itl.p50 + 0.015) is stalled
    assert (said[2] > said[0] + 0.015) is stalled
    assert seen.classes[0].itl.p99 == pytest.approx(said[2], rel=0.25)
