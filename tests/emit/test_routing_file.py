"""The proxy's routing file says what the plan says."""

from __future__ import annotations

import json

import pytest

from disaggc.emit.engine_part import engine_parts
from disaggc.emit.routing_file import routing_table, with_metrics
from disaggc.ir.canonical import fingerprint
from disaggc.ir.plan import Argument, ConnectorPlan, DeploymentPlan, Literally
from disaggc.routing.table import Dialect, RoutingTable, dump_table, load_table
from tests.emit.plans import PLANS, Texts, colocated, five_nodes, flexible, multi_node


def outcome(plan: DeploymentPlan):
    parts = {part.replica.address: part for part in engine_parts(plan) if part.serves}
    return routing_table(plan, plan.services[0], lambda part: part.node.address or "pod", parts=parts)


def table(plan: DeploymentPlan) -> RoutingTable:
    found = outcome(plan)
    assert found.value is not None, found.diagnostics
    return found.value


@pytest.mark.parametrize("name", sorted(PLANS))
def test_it_is_a_table_the_proxy_reads(name):
    found = table(PLANS[name]())
    assert load_table(dump_table(found)) == found


def test_replicas_pools_and_limits():
    plan = five_nodes()
    found = table(plan)
    assert (found.generation, found.fingerprint) == (1, fingerprint(plan))
    assert [(pool.address, len(pool.replicas)) for pool in found.pools] == [
        ("chat/prefill", 1),
        ("chat/decode", 4),
    ]
    decode = found.pools[1].replicas[2]
    assert (decode.host, decode.port, decode.cohort) == ("10.0.0.4", 20000, "0123456789")
    assert (decode.kv_tokens, decode.max_seqs) == (1_000_000, 256)
    assert (found.max_model_len, found.block_size, found.skip_prefill_below) == (16384, 64, 256)
    assert found.models == ("deepseek-ai/DeepSeek-R1",)
    assert found.dialect is Dialect.NIXL
    assert found.listen.port == 8000
    assert found.classes["reasoning"].priority == 0


def test_a_data_parallel_replica_counts_all_its_ranks():
    wide = table(multi_node()).pools[1].replicas[0]
    assert (wide.dp, wide.kv_tokens, wide.max_seqs) == (16, 16_000_000, 16 * 256)


def test_deadlines_are_inside_one_another():
    found = table(five_nodes())
    assert found.lease_s == 60
    assert found.timeouts.handoff_s < found.lease_s
    assert found.timeouts.idle_upstream_s == 90
    assert found.timeouts.drain_s == 1500
    slowest_s = 240 * 4 * 1.4
    assert found.timeouts.total_s >= slowest_s


def test_modes_without_kv_transfer_and_with_split_roles():
    assert table(colocated()).dialect is Dialect.NONE
    assert table(colocated()).health.canary_s is None
    assert table(flexible()).health.canary_s == 60
    assert table(colocated()).pools[0].replicas[0].kv is None
    assert table(flexible()).pools[0].split == (1, 2)


def test_keys_are_named_and_never_written():
    assert table(five_nodes()).api_key.env == "DISAGGC_API_KEY"
    assert table(five_nodes(Texts(api_key=None))).api_key is None
    assert table(five_nodes(Texts(api_key=None, api_key_file="/run/key"))).api_key.file == "/run/key"


def with_connector(kind: str, config: dict[str, object]) -> DeploymentPlan:
    plan = five_nodes()
    service = plan.services[0]
    pools = []
    for pool in service.pools:
        replicas = []
        for replica in pool.replicas:
            kept = tuple(a for a in replica.arguments if a.flag != "--kv-transfer-config")
            added = Argument(flag="--kv-transfer-config", value=Literally(value=json.dumps(config)))
            ports = replica.ports.model_copy(update={"bootstrap": 20003, "notify": 20010})
            replicas.append(replica.model_copy(update={"arguments": (*kept, added), "ports": ports}))
        pools.append(pool.model_copy(update={"replicas": tuple(replicas)}))
    connector = ConnectorPlan(type=kind, name="X", lease_s=60, load_failure="fail")  # type: ignore[arg-type]
    changed = service.model_copy(update={"pools": tuple(pools), "connector": connector})
    return plan.model_copy(update={"services": (changed,)})


@pytest.mark.parametrize(
    ("kind", "config", "dialect"),
    [
        ("nixl-push", {"engine_id": "p0"}, Dialect.NIXL_PUSH),
        ("mooncake", {"engine_id": "p0"}, Dialect.MOONCAKE),
        ("moriio", {"kv_connector_extra_config": {}}, Dialect.MORIIO_WRITE),
        ("moriio", {"kv_connector_extra_config": {"read_mode": True}}, Dialect.MORIIO_READ),
    ],
)
def test_dialects(kind, config, dialect):
    found = table(with_connector(kind, config))
    assert found.dialect is dialect
    kv = found.pools[0].replicas[0].kv
    assert kv is not None
    assert (kv.side_channel_port, kv.bootstrap_port, kv.notify_port) == (20004, 20003, 20010)


@pytest.mark.parametrize("kind", ["nixl-push", "mooncake"])
def test_an_identity_that_nobody_knows_is_an_error(kind):
    found = outcome(with_connector(kind, {}))
    assert found.value is None
    assert [d.code for d in found.diagnostics] == ["DGC602"]
    assert "engine_id" in found.diagnostics[0].message


def test_what_the_proxy_would_refuse_is_an_error_here():
    plan = five_nodes()
    service = plan.services[0].model_copy(update={"cohort": "not a name"})
    found = outcome(plan.model_copy(update={"services": (service,)}))
    assert found.value is None
    assert [d.code for d in found.diagnostics] == ["DGC602"]
    assert "cohort" in found.diagnostics[0].message


def test_metrics_get_an_address_where_the_target_has_one():
    plan = five_nodes()
    (service,) = plan.services
    own = with_metrics(table(plan), service, "10.0.0.1").listen
    assert (own.metrics_host, own.metrics_port) == ("10.0.0.1", 19500)
    assert (own.admin_host, own.admin_port, own.port) == ("127.0.0.1", 19000, 8000)
    assert with_metrics(table(plan), service, None).listen.metrics_host is None
