"""Closed forms of waiting: pure arithmetic over rates and times, knows no model and no layout."""

from __future__ import annotations

import math

SATURATED = 0.9995
"""Utilisation above which a queue counts as full: the closed forms diverge, an overloaded pool is reported instead."""
HORIZON_S = 3600.0
"""An overloaded open queue has no steady state; its wait is the mean over the first hour of the overload."""


def wait_mean(service_s: float, servers: float, rho: float, *, variability: float) -> float:
    """Mean wait of a G/G/c queue, seconds (Allen-Cunneen with Sakasegawa's exponent).

    variability: (Ca^2 + Cs^2) / 2, 1 for M/M/c, 0.5 for M/D/c. rho in [0, 1).
    """
    if rho <= 0 or service_s <= 0:
        return 0.0
    return variability * service_s * _reach(servers, rho) / (servers * (1 - rho))


def wait_probability(servers: float, rho: float) -> float:
    """Share of arrivals that wait, by the same approximation (exact for one server)."""
    if rho <= 0:
        return 0.0
    return min(1.0, _reach(servers, rho))


def wait_percentile(mean_s: float, probability: float, percentile: float) -> float:
    """Percentile of the wait: zero for those who do not wait, exponential for those who do. percentile in (0, 100)."""
    if mean_s <= 0 or probability <= 0:
        return 0.0
    tail = 1 - percentile / 100
    if probability <= tail:
        return 0.0
    return mean_s / probability * math.log(probability / tail)


def closed_wait_bound(in_flight: float, service_s: float, servers: float) -> float:
    """No request of a closed loop waits longer than for all the others to be served."""
    return in_flight * service_s / servers


def overload_wait(offered: float, served: float) -> float:
    """Mean wait over the first hour when more is offered than served, both per second."""
    return max(0.0, 1 - served / offered) * HORIZON_S / 2 if offered > 0 else 0.0


def in_flight(rate: float, time_s: float) -> float:
    """Little's law."""
    return rate * time_s


def _reach(servers: float, rho: float) -> float:
    """Sakasegawa's share of arrivals that find every server busy."""
    return math.pow(rho, math.sqrt(2 * (servers + 1)) - 1)
