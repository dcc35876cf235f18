from __future__ import annotations

import pytest

from disaggc.ir.changes import Baseline, Facet, changes, facets_of, origin_of
from tests.emit.plans import PLANS, five_nodes

FIELDS = {
    "services.chat.workload.reasoning.rate": "a",
    "services.chat.proxy.port": "b",
    "cluster.fabric.type": "c",
    "services.code.model.id": "d",
}


def built(plan, fields=FIELDS):
    return Baseline(facets_of(plan), fields, origin_of(plan))


@pytest.mark.parametrize("name", sorted(PLANS))
def test_nothing_changed_is_no_change(name):
    plan = PLANS[name]()
    assert changes(built(plan), plan, FIELDS) == ()


def test_first_build_creates_every_part_and_names_its_cause():
    plan = five_nodes()
    found = changes(Baseline({}, {}, None), plan, FIELDS)
    assert {c.action for c in found} == {"create"}
    assert {c.address for c in found} == {
        "chat/routing",
        "chat/prefill/0",
        "chat/decode/0",
        "chat/decode/1",
        "chat/decode/2",
        "chat/decode/3",
        "chat/proxy/0",
    }
    proxy = next(c for c in found if c.address == "chat/proxy/0")
    assert proxy.fields == ("services.chat.proxy",)


def edited(plan, pool, replica, **update):
    service = plan.services[0]
    old = service.pools[pool]
    replicas = list(old.replicas)
    replicas[replica] = replicas[replica].model_copy(update=update)
    pools = list(service.pools)
    pools[pool] = old.model_copy(update={"replicas": tuple(replicas)})
    return plan.model_copy(update={"services": (service.model_copy(update={"pools": tuple(pools)}),)})


def test_changed_argument_updates_only_its_replica():
    before = five_nodes()
    replica = before.services[0].pools[1].replicas[2]
    after = edited(before, 1, 2, arguments=replica.arguments[:-1])
    (found,) = changes(built(before), after, {**FIELDS, "services.chat.engine.settings.x": "new"})
    assert (found.action, found.address) == ("update", "chat/decode/2")
    assert found.fields == ("services.chat.engine.settings.x",)


def test_moved_replica_is_replaced_and_routing_follows():
    before = five_nodes()
    slot = before.services[0].pools[1].replicas[0].slots[0]
    after = edited(before, 1, 0, slots=(slot.model_copy(update={"devices": (0, 1)}),))
    assert [(c.action, c.address) for c in changes(built(before), after, FIELDS)] == [
        ("replace", "chat/decode/0")
    ]
    elsewhere = edited(before, 1, 0, slots=(slot.model_copy(update={"node": "gpu-01"}),))
    assert [(c.action, c.address) for c in changes(built(before), elsewhere, FIELDS)] == [
        ("replace", "chat/decode/0"),
        ("update", "chat/routing"),
    ]


def test_removed_replicas_are_removed():
    before = five_nodes()
    service = before.services[0]
    fewer = service.pools[1].model_copy(update={"replicas": service.pools[1].replicas[:2]})
    after = before.model_copy(
        update={"services": (service.model_copy(update={"pools": (service.pools[0], fewer)}),)}
    )
    found = changes(built(before), after, {**FIELDS, "services.chat.workload.reasoning.rate": "slower"})
    assert [(c.action, c.address) for c in found] == [
        ("remove", "chat/decode/2"),
        ("remove", "chat/decode/3"),
        ("update", "chat/routing"),
    ]
    assert all(c.fields == ("services.chat.workload.reasoning.rate",) for c in found)


def test_cause_is_the_changed_field_the_part_depends_on():
    before = five_nodes()
    service = before.services[0]
    proxy = service.proxy.model_copy(update={"port": 9000})
    after = before.model_copy(update={"services": (service.model_copy(update={"proxy": proxy}),)})
    now = {**FIELDS, "services.chat.proxy.port": "9000", "services.chat.workload.reasoning.rate": "new"}
    (found,) = changes(built(before), after, now)
    assert (found.address, found.fields) == ("chat/proxy/0", ("services.chat.proxy.port",))


def test_another_service_is_never_the_cause():
    before = five_nodes()
    replica = before.services[0].pools[1].replicas[2]
    after = edited(before, 1, 2, arguments=replica.arguments[:-1])
    (found,) = changes(
        built(before), after, {**FIELDS, "services.code.model.id": "x", "cluster.fabric.type": "y"}
    )
    assert found.fields == ("cluster.fabric.type",)


def test_without_a_changed_field_the_facts_or_the_compiler_are_named():
    before = five_nodes()
    replica = before.services[0].pools[1].replicas[2]
    made = before.provenance.model_copy(update={"disaggc": "0.2.0", "catalog": "sha256:other"})
    after = edited(before, 1, 2, arguments=replica.arguments[:-1]).model_copy(update={"provenance": made})
    (found,) = changes(built(before), after, FIELDS)
    assert found.cause == "changed catalog facts, disaggc 0.1.0 -> 0.2.0"
    assert found.fields == ()


def test_a_lock_alone_knows_places_not_processes():
    plan = five_nodes()
    places = {a: Facet(f.place, None) for a, f in facets_of(plan).items()}
    assert changes(Baseline(places, {}, None), plan, FIELDS) == ()
    places["chat/decode/1"] = Facet("elsewhere", None)
    (found,) = changes(Baseline(places, {}, None), plan, FIELDS)
    assert (found.action, found.address) == ("replace", "chat/decode/1")
    assert found.cause == "disaggc.lock records another layout"


def test_addresses_sort_by_number():
    plan = five_nodes()
    service = plan.services[0]
    many = tuple(
        service.pools[1].replicas[0].model_copy(update={"address": f"chat/decode/{i}", "index": i})
        for i in range(12)
    )
    pools = (service.pools[0], service.pools[1].model_copy(update={"replicas": many}))
    after = plan.model_copy(update={"services": (service.model_copy(update={"pools": pools}),)})
    numbers = [
        c.address.split("/")[2]
        for c in changes(Baseline({}, {}, None), after, FIELDS)
        if "decode" in c.address
    ]
    assert numbers == [str(i) for i in range(12)]
