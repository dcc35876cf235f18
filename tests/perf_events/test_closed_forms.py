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
