"""Deadlines of the proxy: what the spec gives is kept, the rest lies inside one another and comes from the prediction."""

from __future__ import annotations

from itertools import combinations

import pytest

from disaggc.emit.engine_part import engine_parts
from disaggc.emit.routing_file import routing_table
from disaggc.ir.front import Deadlines
from disaggc.solve.lower.deadlines import LEG_FLOOR_S, deadlines, slowest
from disaggc.verify.api import verify
from tests.solve.spec_cases import FIVE, plan, resolved

AT = "services.chat.proxy.timeouts"


def lowered(example: str, *sets: str) -> tuple[Deadlines, float]:
    made, _ = plan(example, *sets)
    (service,) = made.services
    return service.proxy.deadlines, float(service.connector.lease_s if service.connector else 0)


def inside(found: Deadlines, lease_s: float) -> bool:
    legs = (found.prefill_s, found.first_byte_s)
    stages = (*legs, found.gap_s, found.queue_s, found.handoff_s)
    return (
        found.connect_s <= min(*legs, found.handoff_s)
        and max(stages) <= found.total_s
        and found.handoff_s < lease_s
        and min(found.connect_s, *stages) > 0
    )


def test_the_default_follows_the_prediction() -> None:
    made, spec = plan("starter")
    (service,), (asked,) = made.services, spec.services
    found = service.proxy.deadlines
    assert inside(found, service.connector.lease_s)
    assert found.prefill_s == found.first_byte_s
    first_s = slowest(service.predicted, "ttft_ms")
    longest = first_s * asked.max_model_len / max(load.isl.p50 for load in asked.classes)
    assert LEG_FLOOR_S <= found.prefill_s < 60, "near the prediction, not e.g. 120 s"
    assert found.prefill_s >= max(4 * first_s, 4 * longest)
    assert found.total_s >= 4 * slowest(service.predicted, "e2e_ms")


def test_clients_that_all_begin_at_once_are_not_cut() -> None:
    """160 prompts of 8K at one prefill engine: the last waits for all the others, which no steady p99 shows."""
    made, spec = plan(FIVE, overlay="8k-1k.yaml")
    (service,), (asked,) = made.services, spec.services
    (load,) = asked.classes
    rate = sum(one.rate.value for one in service.predicted.classes.values())
    last_s = load.concurrency * service.predicted.utilisation["prefill"] / rate
    assert last_s > slowest(service.predicted, "ttft_ms") * 4
    assert last_s < service.proxy.deadlines.prefill_s < 300


@pytest.mark.parametrize(
    "given",
    [
        dict(pair)
        for pair in combinations(
            [
                ("total", 7.0),
                ("prefill", 2.0),
                ("first_byte", 3.0),
                ("handoff", 1.5),
                ("gap", 0.5),
                ("queue", 4.0),
            ],
            2,
        )
    ],
    ids=str,
)
def test_what_is_given_is_kept_and_the_rest_fits(given: dict[str, float]) -> None:
    made, _ = plan("starter")
    (service,) = made.services
    (asked,) = resolved("starter", *(f"{AT}.{name}={seconds}s" for name, seconds in given.items())).services
    found = deadlines(asked, service.predicted, 30)
    assert inside(found, 30)
    assert {name: getattr(found, f"{name}_s") for name in given} == given


def test_long_stages_make_the_whole_long() -> None:
    made, _ = plan("starter")
    (asked,) = resolved("starter", f"{AT}.prefill=3h").services
    found = deadlines(asked, made.services[0].predicted, 30)
    assert (found.prefill_s, found.total_s) == (10800, 10800)


def test_an_automatic_lease_covers_a_given_handoff() -> None:
    found, lease_s = lowered("starter", f"{AT}.handoff=40s")
    assert (found.handoff_s, lease_s) == (40, 67)
    assert inside(found, lease_s)
    short, _ = lowered("starter", "services.chat.engine.connector.lease=10s")
    assert (short.handoff_s, short.connect_s) == (6, 5)


def test_they_reach_the_routing_file() -> None:
    made, _ = plan(FIVE, f"{AT}.prefill=90s", f"{AT}.gap=20s", f"{AT}.connect=1500ms")
    (service,) = made.services
    parts = {part.replica.address: part for part in engine_parts(made) if part.serves}
    table = routing_table(made, service, lambda _: "127.0.0.1", parts=parts).value
    assert table is not None
    times = table.timeouts
    assert (times.prefill_s, times.gap_s, times.connect_s) == (90, 20, 1.5)
    assert times.model_dump().items() >= service.proxy.deadlines.model_dump().items()


def test_a_deadline_below_the_prediction_is_said_where_it_stands() -> None:
    made, spec = plan("starter", f"{AT}.first_byte=10ms", f"{AT}.gap=10s")
    (found,) = verify(made, spec)
    assert (found.code, found.severity, found.path[-1]) == ("DGC545", "warning", "first_byte")
    assert "p99 TTFT of `rag`" in found.message
