"""Skipping over steps against doing every one of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disaggc.perf.events.curve import steps_in, time_of
from tests.effort import examples
from tests.perf_events.parts import Formula, decode_engine, flight, poisson, rng_of, run

LINEAR = Formula(lambda b, c: 0.008 + 2e-5 * b + 4e-8 * b * c, token_s=1e-5, mixed_s=0.001)


def every_step(arrivals, lengths, prompt):
    """(finish, first token, ITL samples) of a replica that gets its KV at once, one step after the other."""
    waiting = sorted(zip(arrivals, range(len(arrivals)), strict=True))
    running, first, finish, intervals = {}, {}, {}, []
    now = 0.0
    while waiting or running:
        while waiting and waiting[0][0] <= now:
            _, i = waiting.pop(0)
            running[i] = 0
        if not running:
            now = waiting[0][0]
            continue
        context = sum(prompt + done for done in running.values()) / len(running)
        step = LINEAR.decode(len(running), context)
        now += step
        intervals += [step] * len(running)
        for i in list(running):
            running[i] += 1
            first.setdefault(i, now)
            if running[i] >= lengths[i]:
                finish[i] = now
                del running[i]
    return finish, first, sorted(intervals)


@pytest.mark.parametrize("rate", [0.5, 5.0, 40.0])
def test_the_same_answers_as_step_by_step(rate):
    rng = rng_of(3)
    lengths = [rng.randint(1, 600) for _ in range(300)]
    arrivals = poisson(rate, 300)
    finish, first, intervals = every_step(arrivals, lengths, 2000)
    calendar, desk, engine = decode_engine(LINEAR)
    flights = []
    for at, length in zip(arrivals, lengths, strict=True):
        one = flight(2000, length)
        calendar.enter(at, lambda now, f: engine.offer(f, now), one)
        flights.append(one)
    run(calendar)
    longest = max(intervals)
    for i, one in enumerate(flights):
        # a sequence that joins within a step lengthens the rest of that step here, and only the next one there; over a
        # life of hundreds of steps the differences cancel to less than one
        assert desk.finished_at[one] == pytest.approx(finish[i], abs=2 * longest)
        assert one.first_s == pytest.approx(first[i], abs=2 * longest)
    seen = engine.batch.itl[0]
    assert seen.mean == pytest.approx(sum(intervals) / len(intervals), rel=0.01)
    for share in (0.5, 0.9, 0.99):
        assert seen.quantile(share) == pytest.approx(intervals[int(share * (len(intervals) - 1))], rel=0.02)


def test_events_do_not_grow_with_the_answers():
    counts = []
    for length in (64, 8192):
        calendar, desk, engine = decode_engine(LINEAR)
        for at in poisson(3.0, 500):
            calendar.enter(at, lambda now, f, engine=engine: engine.offer(f, now), flight(1000, length))
        run(calendar)
        assert len(desk.finished_at) == 500
        counts.append(calendar.handled)
    # 128 times the tokens; a few more wake-ups that a later arrival made stale
    assert counts[1] <= counts[0] * 1.2
    assert max(counts) <= 5 * 500


@given(st.floats(1e-4, 1.0), st.floats(0, 1e-4), st.floats(1e-3, 1e4))
def test_steps_and_their_time_are_inverse(step, growth, steps):
    assert steps_in(time_of(steps, step, growth), step, growth) == pytest.approx(steps, rel=1e-6)


@pytest.mark.parametrize("window", [0, 512])
def test_a_sliding_window_bends_the_line_once(window):
    from disaggc.perf.events.curve import Curve

    def decode(b, c):
        return 0.01 + 1e-7 * b * c + 3e-7 * b * min(c, window)

    curve = Curve(Formula(decode, window=window), 1.0)  # type: ignore[arg-type]
    for context in (0, 100, 511, 513, 5000):
        fixed, slope = curve.line(7, context)
        assert fixed + slope * context == pytest.approx(decode(7, context))


# --- prompts beside decode -----------------------------------------------------------------------------------------


def stalled(share_of_steps):
    """ITL of a replica in which this share of the steps carries a prompt."""
    steps, times = 20_000, Formula(lambda _b, _c: 0.01, token_s=1e-4, mixed_s=0.0)
    calendar, _, engine = decode_engine(times, budget=4096)
    calendar.enter(0.0, lambda now, f: engine.offer(f, now), flight(1, steps))
    count = round(steps * share_of_steps)
    for i in range(count):
        calendar.enter(0.05 + i * steps * 0.01 / count, lambda now, f: engine.prompt(f, now), flight(1000, 1))
    run(calendar)
    return engine.batch.itl[0]


def test_the_p99_of_token_intervals_jumps_where_one_step_in_a_hundred_is_stalled():
    rare, often = stalled(0.008), stalled(0.012)
    assert rare.quantile(0.99) == pytest.approx(0.01, rel=0.01)
    assert often.quantile(0.99) == pytest.approx(0.01 + 0.1, rel=0.01)
    assert rare.quantile(0.5) == often.quantile(0.5) == pytest.approx(0.01, rel=0.01)


def test_a_long_prompt_is_computed_in_chunks_between_which_tokens_come():
    calendar, desk, engine = decode_engine(Formula(lambda _b, _c: 0.01, token_s=1e-4), budget=1025)
    runner, prompt = flight(1, 1000), flight(4096, 1)
    calendar.enter(0.0, lambda now, f: engine.offer(f, now), runner)
    calendar.enter(1.0, lambda now, f: engine.prompt(f, now), prompt)
    run(calendar)
    assert prompt.first_s == pytest.approx(1.0 + 4 * 0.01 + 0.4096, abs=0.011)
    assert engine.batch.itl[0].quantile(0.999) == pytest.approx(0.01 + 0.1024, rel=0.01)
    assert desk.finished_at[runner] == pytest.approx(10.0 + 0.4096, abs=0.011)


def test_prefill_computes_a_long_prompt_at_the_same_cost_in_any_budget():
    from tests.perf_events.parts import prefill_engine

    ends = []
    for budget in (512, 1000, 4096, 10_000):
        calendar, desk, engine = prefill_engine(Formula(token_s=1e-4, square_s=1e-8), budget=budget)
        one = flight(5000)
        calendar.enter(0.0, lambda now, f, engine=engine: engine.prompt(f, now), one)
        run(calendar)
        ends.append(desk.prefilled_at[one])
    assert ends == pytest.approx([5000 * 1e-4 + 5000**2 * 1e-8] * 4)


def test_chunks_cost_their_fixed_time_each():
    from tests.perf_events.parts import prefill_engine

    calendar, desk, engine = prefill_engine(Formula(token_s=1e-4, fixed_s=0.01), budget=1000)
    one = flight(3500)
    calendar.enter(0.0, lambda now, f: engine.prompt(f, now), one)
    run(calendar)
    assert desk.prefilled_at[one] == pytest.approx(0.35 + 4 * 0.01)


# --- memory --------------------------------------------------------------------------------------------------------


def test_sequences_that_outgrow_memory_are_preempted_and_still_end():
    calendar, desk, engine = decode_engine(LINEAR, kv_tokens=10_000)
    flights = [flight(1000, 1500) for _ in range(8)]
    for one in flights:
        calendar.enter(0.0, lambda now, f: engine.offer(f, now), one)
    run(calendar)
    assert engine.preemptions > 0
    assert set(desk.finished_at) == set(flights)
    assert engine.kv_used == pytest.approx(0, abs=1e-6)
    assert engine.waiting == 0
    # whoever joined last gave way: the first ones end first
    ends = [desk.finished_at[f] for f in flights]
    assert min(ends) == ends[0]


@settings(max_examples=examples(60))
@example(asks=[(0.0, 50, 198, False), (1.0, 377, 74, False)], seqs=2, kv_tokens=700, ranks=1)
@example(
    asks=[(0.0, 139, 155, False), (1.0, 397, 300, False), (3.5, 1, 1, False)], seqs=2, kv_tokens=700, ranks=1
)
@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(1, 400), st.integers(1, 300), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 6),
    st.integers(700, 3000),
    st.integers(1, 2),
)
def test_whatever_comes_everything_ends_once_and_memory_is_given_back(asks, seqs, kv_tokens, ranks):
    calendar, desk, engine = decode_engine(LINEAR, seqs=seqs, kv_tokens=kv_tokens, budget=128, ranks=ranks)
    flights = []
    for at, isl, osl, here in asks:
        one = flight(isl, osl)
        one.sent_s = at
        call = engine.prompt if here else engine.offer
        calendar.enter(at, lambda now, f, call=call: call(f, now), one)
        flights.append(one)
    run(calendar)
    assert set(desk.finished_at) == set(flights)
    assert engine.kv_used == pytest.approx(0, abs=1e-6)
    assert engine.waiting == 0
    assert not engine.batch.running
    for one in flights:
        assert one.sent_s < one.first_s <= desk.finished_at[one] + 1e-9
        # no token comes faster than the fastest step
        fastest = LINEAR.decode(1, 0)
        assert desk.finished_at[one] - one.first_s >= (one.osl - 1) * fastest * (1 - 1e-6) - 1e-9


def test_more_room_never_makes_the_last_answer_later():
    ends = []
    for kv_tokens in (4000, 6000, 9000, 20_000):
        calendar, _, engine = decode_engine(Formula(lambda _b, _c: 0.01), kv_tokens=kv_tokens)
        for at in poisson(5.0, 100):
            calendar.enter(at, lambda now, f, engine=engine: engine.offer(f, now), flight(1500, 200))
        ends.append(run(calendar))
    assert all(later <= earlier + 0.02 for earlier, later in pairwise(ends))


def test_speculative_steps_give_several_tokens():
    calendar, desk, engine = decode_engine(Formula(lambda _b, _c: 0.01), per_step=2.5)
    one = flight(10, 1000)
    calendar.enter(0.0, lambda now, f: engine.offer(f, now), one)
    run(calendar)
    assert desk.finished_at[one] == pytest.approx(400 * 0.01)
