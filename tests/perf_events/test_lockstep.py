"""Ranks over which experts are spread step together; ranks of a dense model do not."""

from __future__ import annotations

import pytest

from disaggc.ir.plan import Shape
from disaggc.perf.events import Load, Offered, simulate
from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.lockstep import Lockstep
from disaggc.perf.events.prefill_engine import PrefillEngine
from tests.perf.perf_cases import bench, load, nodes
from tests.perf_events.parts import Desk, Formula, flight, poisson, run

TOKEN_S = 1e-4


def ranks(count: int, *, together: bool, budget: float = 1000) -> tuple[Calendar, Desk, list[PrefillEngine]]:
    calendar = Calendar()
    desk = Desk(calendar)
    group = Lockstep(calendar) if together else None
    times = Formula(token_s=TOKEN_S)
    made = [
        PrefillEngine(times, calendar, desk, budget=budget, kv_tokens=1e9, lease_s=30, group=group)  # type: ignore[arg-type]
        for _ in range(count)
    ]
    return calendar, desk, made


@pytest.mark.parametrize("together", [True, False])
def test_a_prompt_waits_for_the_step_of_the_other_rank_where_they_step_together(together):
    calendar, desk, (one, two) = ranks(2, together=together)
    long, short = flight(1000), flight(100)
    calendar.enter(0.0, lambda now, f: one.prompt(f, now), long)
    calendar.enter(0.04, lambda now, f: two.prompt(f, now), short)
    run(calendar)
    assert desk.prefilled_at[long] == pytest.approx(0.1)
    assert desk.prefilled_at[short] == pytest.approx(0.11 if together else 0.05)


def test_the_rank_with_most_to_do_sets_the_time_of_a_step():
    calendar, desk, (one, two) = ranks(2, together=True)
    long, short = flight(800), flight(200)

    def both(now: float, _subject: object) -> None:
        one._queue.append(long)
        long.source = one
        two.prompt(short, now)

    calendar.enter(0.0, both)
    run(calendar)
    assert desk.prefilled_at[long] == desk.prefilled_at[short] == pytest.approx(0.08)
    assert one.busy_s == two.busy_s == pytest.approx(0.08)


def test_a_long_prompt_lets_the_others_in_after_each_of_its_steps():
    calendar, desk, (one, two) = ranks(2, together=True)
    long, short = flight(5000), flight(100)
    calendar.enter(0.0, lambda now, f: one.prompt(f, now), long)
    calendar.enter(0.15, lambda now, f: two.prompt(f, now), short)
    run(calendar)
    assert desk.prefilled_at[short] == pytest.approx(0.3), (
        "of the third step, which begins at 0.2 s and takes 0.1 s"
    )
    assert desk.prefilled_at[long] == pytest.approx(0.5)


def test_stepping_together_never_serves_a_crowd_sooner():
    waits = []
    for together in (False, True):
        calendar, desk, made = ranks(4, together=together)
        flights = []
        for number, at in enumerate(poisson(25.0, 4000)):
            one = flight(1000)
            one.sent_s = at
            calendar.enter(at, lambda now, f, rank=made[number % 4]: rank.prompt(f, now), one)
            flights.append(one)
        run(calendar)
        waits.append(sum(desk.prefilled_at[f] - f.sent_s for f in flights) / len(flights))
    assert waits[1] > 1.1 * waits[0]


def test_a_replica_that_ends_in_the_middle_of_a_step_starts_anew():
    calendar, desk, (one, two) = ranks(2, together=True)
    first, second = flight(1000), flight(500)
    calendar.enter(0.0, lambda now, f: one.prompt(f, now), first)
    calendar.enter(0.05, lambda _now, _f: (one.clear(), two.clear()))
    calendar.enter(0.06, lambda now, f: two.prompt(f, now), second)
    run(calendar)
    assert first not in desk.prefilled_at
    assert desk.prefilled_at[second] == pytest.approx(0.11)


@pytest.mark.parametrize(
    ("model", "together"), [("deepseek-ai/DeepSeek-R1", True), ("Qwen/Qwen3-32B", False)]
)
def test_only_experts_that_are_spread_over_the_ranks_bind_them(model, together):
    shape = Shape(dp=8, ep=8) if together else Shape(dp=4)
    one = bench(model, nodes("h200"), shape, load(isl=2048, osl=16, rate=2), max_model_len=12288)
    times = one.models.engine(one.service, one.group, shape).likely
    assert (times.work.all2alls > 0) is together
    offered = [Offered(10.0 * n + late, 6000, 8) for n in range(20) for late in (0.0, 0.05)]
    seen = simulate(one.models, one.service, one.pd(1, 1), load=Load.trace(offered))
    single = simulate(
        one.models, one.service, one.pd(1, 1), load=Load.trace([o for o in offered if o.at_s % 10 == 0])
    )
    later = seen.classes[0].ttft.p90 > 1.2 * single.classes[0].ttft.p90
    assert later is together
