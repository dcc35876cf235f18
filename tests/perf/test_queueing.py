from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.perf import queueing


def erlang_c(servers: int, rho: float) -> float:
    """Share of arrivals that wait in M/M/c, exactly."""
    offered = servers * rho
    terms = [offered**k / math.factorial(k) for k in range(servers)]
    full = offered**servers / math.factorial(servers) / (1 - rho)
    return full / (sum(terms) + full)


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.8, 0.95])
def test_one_server_is_exactly_mm1(rho):
    assert queueing.wait_mean(2.0, 1, rho, variability=1.0) == pytest.approx(2.0 * rho / (1 - rho))


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.8, 0.95])
def test_one_server_of_fixed_service_is_exactly_md1(rho):
    assert queueing.wait_mean(2.0, 1, rho, variability=0.5) == pytest.approx(2.0 * rho / (2 * (1 - rho)))


@pytest.mark.parametrize("servers", [2, 4, 8, 16])
@pytest.mark.parametrize(("rho", "share"), [(0.9, 0.05), (0.97, 0.02)])
def test_many_busy_servers_come_close_to_erlang_c(servers, rho, share):
    exact = erlang_c(servers, rho) / (servers * (1 - rho))
    assert queueing.wait_mean(1.0, servers, rho, variability=1.0) == pytest.approx(exact, rel=share)


@pytest.mark.parametrize("servers", [2, 4, 8, 16])
@pytest.mark.parametrize("rho", [0.3, 0.5, 0.7])
def test_many_idle_servers_are_judged_a_little_too_slow_never_too_fast(servers, rho):
    exact = erlang_c(servers, rho) / (servers * (1 - rho))
    assert 0 <= queueing.wait_mean(1.0, servers, rho, variability=1.0) - exact < 0.06


def test_percentiles_of_mm1_are_exact():
    rho, service = 0.8, 1.0
    mean = queueing.wait_mean(service, 1, rho, variability=1.0)
    for percentile in (50, 90, 99):
        exact = service / (1 - rho) * math.log(rho / (1 - percentile / 100))
        assert queueing.wait_percentile(mean, queueing.wait_probability(1, rho), percentile) == pytest.approx(
            exact
        )


def test_the_median_of_a_light_queue_is_no_wait():
    mean = queueing.wait_mean(1.0, 1, 0.3, variability=1.0)
    assert queueing.wait_percentile(mean, queueing.wait_probability(1, 0.3), 50) == 0
    assert queueing.wait_percentile(mean, queueing.wait_probability(1, 0.3), 99) > 0


@given(st.floats(0.001, 100), st.integers(1, 500), st.floats(0, 0.99), st.floats(0, 0.99), st.floats(0, 100))
def test_more_load_never_waits_less(service, servers, first, second, variability):
    low, high = sorted((first, second))
    assert queueing.wait_mean(service, servers, low, variability=variability) <= queueing.wait_mean(
        service, servers, high, variability=variability
    )


@given(st.floats(0.001, 100), st.integers(1, 400), st.floats(0.01, 0.99))
def test_more_servers_at_equal_load_never_wait_longer(service, servers, rho):
    one = queueing.wait_mean(service, servers, rho, variability=1.0)
    assert queueing.wait_mean(service, servers + 1, rho, variability=1.0) <= one * (1 + 1e-12)


def test_the_closed_loop_bound_is_everyone_ahead_served():
    assert queueing.closed_wait_bound(480, 0.5, 4) == 60


def test_an_overload_waits_half_the_missing_share_of_an_hour():
    assert queueing.overload_wait(10, 5) == pytest.approx(900)
    assert queueing.overload_wait(5, 5) == 0
