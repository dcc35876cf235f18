"""The load a plan promises is let in by the routing file it leads to, and not much more than decode carries."""

from __future__ import annotations

import random

import pytest

from disaggc.emit.engine_part import engine_parts
from disaggc.emit.routing_file import routing_table
from disaggc.ir.plan import DeploymentPlan, Role, ServicePlan
from disaggc.resolve.model import ResolvedService
from disaggc.routing.admission import has_room
from disaggc.routing.choice import least_work
from disaggc.routing.limits import Admission
from disaggc.routing.table import ReplicaEntry, RoutingTable
from tests.solve.spec_cases import CLASS, CONSTRAINTS, FIVE, plan

TWO_THREE = (
    f"{CONSTRAINTS}prefill.replicas=2",
    f"{CONSTRAINTS}decode.replicas=3",
    f"{CONSTRAINTS}mode=disaggregated",
)
CASES = [
    (FIVE, (), "1k-8k.yaml"),
    (FIVE, TWO_THREE, "1k-8k.yaml"),
    (FIVE, (*TWO_THREE, f"{CLASS}concurrency=480"), "8k-1k.yaml"),
    (FIVE, (), "8k-8k.yaml"),
    (FIVE, (), "auto.yaml"),
    (FIVE, ("services.chat.proxy.replicas=2",), "1k-8k.yaml"),
    ("starter", (), None),
    ("llama-70b-h100-k8s", (), None),
    ("qwen3-235b-mixed", (), None),
    ("two-services", (), None),
]


def tables(made: DeploymentPlan) -> list[tuple[ServicePlan, RoutingTable]]:
    parts = {part.replica.address: part for part in engine_parts(made) if part.serves}
    found = []
    for service in made.services:
        outcome = routing_table(made, service, lambda _: "127.0.0.1", parts=parts)
        assert outcome.value is not None, outcome.diagnostics
        found.append((service, outcome.value))
    return found


class Seat:
    """One decode replica in one proxy's eyes."""

    weight = 1.0

    def __init__(self, entry: ReplicaEntry) -> None:
        self.entry, self.address = entry, entry.address
        self.requests, self.work = 0, 0.0


def let_in(table: RoutingTable, limits: Admission, asks: list[float]) -> int:
    """How many of these requests are in flight at once, spread over the proxies at random."""
    entries = [r for pool in table.pools if pool.role is not Role.PREFILL for r in pool.replicas]
    proxies = [[Seat(entry) for entry in entries] for _ in range(table.proxies)]
    dice = random.Random(7)  # noqa: S311 - which proxy a client meets
    inside = 0
    for ask in asks:
        free = [
            seat
            for seat in dice.choice(proxies)
            if has_room(
                seat.entry, limits,
                requests=seat.requests * table.proxies, tokens=seat.work * table.proxies, ask=ask,
            )
        ]  # fmt: skip
        if free:
            seat = least_work(free)
            seat.requests += 1
            seat.work += ask
            inside += 1
    return inside


def promised(service: ServicePlan, asked: ResolvedService) -> list[float]:
    """What the planned requests in flight reserve: their prompt and the mean output, as the proxy learns it."""
    classes = service.predicted.classes
    rates = {load.name: classes[load.name].rate.value for load in asked.classes}
    output = sum(rates[load.name] * load.osl.mean for load in asked.classes) / sum(rates.values())
    dice = random.Random(11)  # noqa: S311 - prompt lengths
    asks = []
    for load in asked.classes:
        little = rates[load.name] * classes[load.name].e2e_ms.p50.value / 1000
        count = load.concurrency if load.concurrency is not None else round(little)
        asks += [
            max(1.0, dice.gauss(load.isl.mean, load.isl.mean * load.isl.cv)) + output for _ in range(count)
        ]
    dice.shuffle(asks)
    return asks


@pytest.mark.parametrize(("example", "sets", "overlay"), CASES)
def test_the_planned_load_is_let_in(example, sets, overlay):
    made, resolved = plan(example, *sets, overlay=overlay)
    asked = {service.name: service for service in resolved.services}
    for service, table in tables(made):
        asks = promised(service, asked[service.name])
        assert let_in(table, table.admission, asks) == len(asks)


def test_without_it_the_planned_load_would_be_refused():
    made, resolved = plan(FIVE, *TWO_THREE, overlay="1k-8k.yaml")
    ((service, table),) = tables(made)
    asks = promised(service, resolved.services[0])
    assert let_in(table, Admission(), asks) < len(asks) == 480


@pytest.mark.parametrize(("example", "sets", "overlay"), CASES)
def test_no_more_is_let_in_than_decode_holds_or_the_plan_has_in_flight(example, sets, overlay):
    made, resolved = plan(example, *sets, overlay=overlay)
    asked = {service.name: service for service in resolved.services}
    for service, table in tables(made):
        planned = promised(service, asked[service.name])
        servers = [pool for pool in service.pools if pool.role is not Role.PREFILL]
        pinned = sum(pool.memory.sequences * pool.shape.dp * len(pool.replicas) for pool in servers)
        flood = planned * (1 + 4 * pinned // len(planned))
        rounded = sum(len(pool.replicas) for pool in servers) * (table.proxies - 1)
        most = max(pinned + rounded, 1.3 * len(planned) + 20)
        assert let_in(table, table.admission, flood) <= most


def test_tokens_bind_where_requests_are_longer_than_planned():
    made, resolved = plan(FIVE, overlay="1k-8k.yaml")
    ((service, table),) = tables(made)
    asks = [2.0 * ask for ask in promised(service, resolved.services[0])] * 4
    pinned = sum(r.max_seqs or 0 for pool in table.pools if pool.role is Role.DECODE for r in pool.replicas)
    assert let_in(table, table.admission, asks) < 0.6 * pinned
