"""How long the proxy waits for each stage of a request: what the spec says, else from what the plan predicts.

They end what is stuck, never what is merely slow. What the spec leaves out is fitted to what it gives, so that every
stage stays inside the one around it; what it gives itself is judged by the rules.
"""

from __future__ import annotations

import math

from disaggc.ir.front import HANDOFF_SHARE, Deadlines
from disaggc.ir.plan import Expectation, Percentiles
from disaggc.resolve.model import ResolvedService

LEG_FLOOR_S = 30.0
"""Least deadline of the prefill leg and of the first byte: as long as a request may wait for admission, so that a burst
that queues at prefill is not cut and sent again, and above a first handshake (5 s) with room."""
TOTAL_FLOOR_S = 3600.0
"""Least deadline of a whole request: outputs are as long as clients ask."""
HANDOFF_CEILING_S = 20.0
PATIENCE = 4.0
"""Deadlines over the cautious p99."""
MOST_OVER_LIKELY = 3.0
"""Where the cautious end cannot carry the offered rate its p99 is the length of a queue that grows without end; no
lease, no drain and no deadline should wait for that."""


def slowest(predicted: Expectation, metric: str) -> float:
    """Seconds: the cautious p99 of the slowest class, at most three times the likely one."""
    return max(_cautious(getattr(outcome, metric)) for outcome in predicted.classes.values())


def deadlines(service: ResolvedService, predicted: Expectation, lease_s: int) -> Deadlines:
    """The deadlines of one service's proxies."""
    given, usual = service.given.proxy.timeouts, Deadlines()
    slow = max(slowest(predicted, "ttft_ms"), _longest_prompt(service, predicted), _burst(service, predicted))
    leg = math.ceil(max(LEG_FLOOR_S, PATIENCE * slow))
    whole = math.ceil(max(TOTAL_FLOOR_S, PATIENCE * slowest(predicted, "e2e_ms")))
    stages = (given.prefill, given.first_byte, given.gap, given.queue, given.handoff)
    total = given.total or max(float(whole), *(stage for stage in stages if stage is not None), 0.0)
    prefill = given.prefill or min(float(leg), total)
    first_byte = given.first_byte or min(float(leg), total)
    handoff = given.handoff or min(HANDOFF_CEILING_S, round(HANDOFF_SHARE * lease_s, 3), total)
    return Deadlines(
        connect_s=given.connect or min(usual.connect_s, prefill, first_byte, handoff),
        prefill_s=prefill,
        handoff_s=handoff,
        first_byte_s=first_byte,
        gap_s=given.gap or min(usual.gap_s, total),
        total_s=total,
        queue_s=given.queue or min(usual.queue_s, total),
    )


def _longest_prompt(service: ResolvedService, predicted: Expectation) -> float:
    """Seconds for the longest prompt the engines take, which no class need have: in proportion to the longest class."""
    load = max(service.classes, key=lambda one: one.isl.p50)
    share = max(1.0, service.max_model_len / load.isl.p50)
    return share * _cautious(predicted.classes[load.name].ttft_ms)


def _burst(service: ResolvedService, predicted: Expectation) -> float:
    """Seconds that prefill takes for everything the plan has in flight: clients of a closed loop all begin at once.

    Open loops have in flight what arrives within p99 of an answer. Prefill serves the whole rate in its busy share;
    colocated engines, which have none, take at most the median first token for each, one after the other.
    """
    held = {
        load.name: load.concurrency or (load.rate or 0.0) * _cautious(predicted.classes[load.name].e2e_ms)
        for load in service.classes
    }
    busy = predicted.utilisation.get("prefill")
    if busy is None:
        return sum(
            count * float(predicted.classes[name].ttft_ms.p50.value) / 1000 for name, count in held.items()
        )
    served = sum(float(outcome.rate.value) for outcome in predicted.classes.values())
    return sum(held.values()) * busy / served if served > 0 else 0.0


def _cautious(found: Percentiles) -> float:
    return min(float(found.p99.high), MOST_OVER_LIKELY * float(found.p99.value)) / 1000
