"""Queues whose answers are known, run through the engines. Tolerances are statistical: 40,000 requests leave 1 to 3 %."""

from __future__ import annotations

import math

import pytest

from tests.perf_events.parts import (
    Formula,
    decode_engine,
    exponential_lengths,
    flight,
    poisson,
    prefill_engine,
    run,
)

COUNT = 40_000


def erlang_c(servers: int, load: float) -> float:
    """Probability to wait in M/M/c with offered load in servers."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_a_prefill_engine_that_takes_one_prompt_a_step_is_m_d_1(rho):
    service = 1000 * 1e-4
    calendar, desk, engine = prefill_engine(Formula(token_s=1e-4), budget=1000)
    flights = []
    for at in poisson(rho / service, COUNT):
        one = flight(1000)
        one.sent_s = at
        calendar.enter(at, lambda now, f: engine.prompt(f, now), one)
        flights.append(one)
    run(calendar)
    wait = sum(desk.prefilled_at[f] - f.sent_s for f in flights) / COUNT - service
    assert wait == pytest.approx(rho * service / (2 * (1 - rho)), rel=0.05)


def test_prompts_of_exponential_length_in_small_chunks_are_m_m_1():
    mean, rho = 2000.0, 0.7
    calendar, desk, engine = prefill_engine(Formula(token_s=1e-4), budget=1)
    flights = []
    lengths = exponential_lengths(mean, COUNT)
    for at, length in zip(poisson(rho / (mean * 1e-4), COUNT), lengths, strict=True):
        one = flight(length)
        one.sent_s = at
        calendar.enter(at, lambda now, f: engine.prompt(f, now), one)
        flights.append(one)
    run(calendar)
    sojourn = sum(desk.prefilled_at[f] - f.sent_s for f in flights) / COUNT
    assert sojourn == pytest.approx(mean * 1e-4 / (1 - rho), rel=0.06)


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.7), (8, 0.85)])
def test_a_decode_engine_with_few_seats_is_m_m_c(servers, rho):
    mean, step = 400.0, 0.01
    calendar, desk, engine = decode_engine(Formula(lambda _b, _c: step), seqs=servers)
    flights = []
    lengths = exponential_lengths(mean, COUNT)
    for at, length in zip(poisson(rho * servers / (mean * step), COUNT), lengths, strict=True):
        one = flight(1, length)
        one.sent_s = at
        calendar.enter(at, lambda now, f: engine.offer(f, now), one)
        flights.append(one)
    run(calendar)
    service = sum(lengths) / COUNT * step
    wait = sum(desk.finished_at[f] - f.sent_s for f in flights) / COUNT - service
    load = rho * servers
    expected = erlang_c(servers, load) * mean * step / (servers - load)
    # joining at a step boundary adds half a step, 0.1 % of the service
    assert wait == pytest.approx(expected, rel=0.08)


@pytest.mark.parametrize("exponential", [True, False])
def test_a_step_that_grows_with_the_batch_is_processor_sharing(exponential):
    """Mean sojourn s / (1 - rho) whatever the distribution of lengths: a law of that queue alone."""
    mean, each, rho = 300, 1e-3, 0.75
    calendar, desk, engine = decode_engine(Formula(lambda b, _c: each * b))
    lengths = exponential_lengths(mean, COUNT) if exponential else [mean] * COUNT
    flights = []
    for at, length in zip(poisson(rho / (mean * each), COUNT), lengths, strict=True):
        one = flight(1, length)
        one.sent_s = at
        calendar.enter(at, lambda now, f: engine.offer(f, now), one)
        flights.append(one)
    run(calendar)
    sojourn = sum(desk.finished_at[f] - f.sent_s for f in flights) / COUNT
    assert sojourn == pytest.approx(mean * each / (1 - rho), rel=0.06)


def test_an_unlimited_engine_holds_what_littles_law_says():
    step, length, rate = 0.02, 200, 30.0
    calendar, _, engine = decode_engine(Formula(lambda _b, _c: step))
    for at in poisson(rate, 5000):
        calendar.enter(at, lambda now, f: engine.offer(f, now), flight(1, length))
    end = run(calendar)
    engine.settle(end)
    # each runs for its steps and for what was left of the step it came into: half of one
    assert engine.batch.sequence_s / 5000 == pytest.approx((length + 0.5) * step, rel=0.002)


def test_sojourn_times_of_m_m_1_are_exponential_to_their_percentiles():
    """At half load, where requests soon forget each other: three deviations of the last percentile are 9 %."""
    mean, rho = 2000.0, 0.5
    calendar, desk, engine = prefill_engine(Formula(token_s=1e-4), budget=1)
    flights = []
    for at, length in zip(poisson(rho / (mean * 1e-4), COUNT), exponential_lengths(mean, COUNT), strict=True):
        one = flight(length)
        one.sent_s = at
        calendar.enter(at, lambda now, f: engine.prompt(f, now), one)
        flights.append(one)
    run(calendar)
    times = sorted(desk.prefilled_at[f] - f.sent_s for f in flights)
    expected = mean * 1e-4 / (1 - rho)
    for share in (0.5, 0.9, 0.99):
        assert times[int(share * COUNT)] == pytest.approx(-expected * math.log(1 - share), rel=0.09)


def mean_value_analysis(clients: int, prompt_s: float, answer_s: float) -> tuple[float, float]:
    """(requests/s, mean time at prefill) of clients that go from one queue with one server to a delay and back."""
    waiting = rate = sojourn = 0.0
    for n in range(1, clients + 1):
        sojourn = prompt_s * (1 + waiting)
        rate = n / (sojourn + answer_s)
        waiting = rate * sojourn
    return rate, sojourn


@pytest.mark.parametrize("clients", [1, 4, 12, 40])
def test_a_closed_loop_through_prefill_and_decode_is_what_mean_value_analysis_says(clients):
    """Exponential prompts at one prefill engine, then steps that no batch slows down: a product-form network, exact."""
    prompt, answer, step = 1000.0, 200, 0.005
    calendar, desk, prefill = prefill_engine(Formula(token_s=1e-4), budget=1)
    _, _, decode = decode_engine(Formula(lambda _b, _c: step), calendar=calendar, desk=desk)
    lengths = iter(exponential_lengths(prompt, 60_000))
    spent, ended = [], []

    def ask(now: float, _subject: object = None) -> None:
        one = flight(next(lengths), answer)
        one.sent_s = now
        prefill.prompt(one, now)

    def prefilled(one, now: float) -> None:
        spent.append(now - one.sent_s)
        prefill.release(one, now)
        calendar.enter(now, lambda at, f: decode.offer(f, at), one)

    def finished(_one, now: float) -> None:
        ended.append(now)
        calendar.enter(now, ask)

    desk.prefilled, desk.finished = prefilled, finished
    for _ in range(clients):
        calendar.enter(0.0, ask)
    calendar.run(lambda _next: len(ended) < 20_000)
    rate, sojourn = mean_value_analysis(clients, prompt * 1e-4, (answer + 0.5) * step)
    early = len(ended) // 10
    assert (len(ended) - early) / (ended[-1] - ended[early]) == pytest.approx(rate, rel=0.02)
    assert sum(spent[early:]) / len(spent[early:]) == pytest.approx(sojourn, rel=0.05)


@pytest.mark.parametrize("start_s", [0.0, 1e6, 1e7, 1e8, 3e8])
def test_a_step_ends_however_far_the_clock_has_come(start_s):
    """Far from zero the clock's own ticks are coarser than the rounding of steps: nothing may wait for ever."""
    calendar, desk, engine = decode_engine(
        Formula(lambda b, _c: 0.001 + 1e-5 * b, token_s=1e-5), seqs=64, budget=2048
    )
    lengths = exponential_lengths(150, 60)
    for i, osl in enumerate(lengths):
        calendar.enter(start_s + i * 0.0123, lambda now, f: engine.prompt(f, now), flight(100, osl))
    asked = 0

    def watch(_next_s: float) -> bool:
        nonlocal asked
        asked += 1
        return asked < 20_000

    calendar.run(watch)
    assert len(desk.finished_at) == len(lengths)
    assert asked < 2_000
