"""What a systemd unit must contain, line by line of the checklist for hosts without an orchestrator."""

from __future__ import annotations

import itertools
import json

import pytest

from disaggc.diagnostics.model import Severity
from disaggc.emit.reading.units import Unit, read_unit
from disaggc.ir.plan import DeploymentPlan, ProxyInstance
from disaggc.routing.table import load_table
from disaggc.spec.model import SystemdTarget
from tests.emit.emitted import codes, files, findings
from tests.emit.plans import (
    ADDRESSED,
    Texts,
    colocated,
    count_only,
    five_nodes,
    flexible,
    multi_node,
    one_box,
)

SETTINGS = SystemdTarget()


def units(plan: DeploymentPlan, settings: SystemdTarget = SETTINGS) -> dict[str, Unit]:
    return {
        path: read_unit(artifact.text)
        for path, artifact in files(plan, settings).items()
        if path.endswith(".service")
    }


def engines(plan: DeploymentPlan) -> dict[str, Unit]:
    return {path: unit for path, unit in units(plan).items() if "-proxy@" not in path}


def unit(plan: DeploymentPlan, name: str) -> Unit:
    return next(u for path, u in units(plan).items() if path.endswith(f"/disaggc-{name}.service"))


def one(unit: Unit, key: str, section: str = "Service") -> str:
    (text,) = unit.raw(section, key)
    return text


def test_one_unit_per_role_instance_on_its_own_host():
    assert sorted(engines(five_nodes())) == [
        "gpu-01/etc/systemd/system/disaggc-chat-prefill@0.service",
        "gpu-02/etc/systemd/system/disaggc-chat-decode@0.service",
        "gpu-03/etc/systemd/system/disaggc-chat-decode@1.service",
        "gpu-04/etc/systemd/system/disaggc-chat-decode@2.service",
        "gpu-05/etc/systemd/system/disaggc-chat-decode@3.service",
    ]


def test_ranked_units_of_a_replica_on_several_nodes():
    plan = multi_node()
    leader, follower = unit(plan, "chat-prefill@0.0"), unit(plan, "chat-prefill@0.1")
    (first,), (second,) = leader.commands("ExecStart"), follower.commands("ExecStart")
    assert second[second.index("--node-rank") + 1] == "1"
    assert first[first.index("--node-rank") + 1] == "0"
    assert "--headless" in second
    assert "--headless" not in first
    for command in (first, second):
        assert command[command.index("--master-addr") + 1] == "10.0.0.1"
    assert first[first.index("--host") + 1] == "10.0.0.1"
    assert second[second.index("--host") + 1] == "10.0.0.2"
    (wide,) = unit(plan, "chat-decode@0.1").commands("ExecStart")
    assert wide[wide.index("--data-parallel-start-rank") + 1] == "8"
    assert "--data-parallel-start-rank" not in unit(plan, "chat-decode@0.0").commands("ExecStart")[0]


@pytest.mark.parametrize("name", sorted(ADDRESSED))
def test_every_engine_unit(name):
    plan = ADDRESSED[name]()
    pools = {pool.address.replace("/", "-"): pool for service in plan.services for pool in service.pools}
    for path, engine in engines(plan).items():
        timings = pools[path.rpartition("/disaggc-")[2].partition("@")[0]].timings
        assert one(engine, "LimitMEMLOCK") == "infinity"
        assert int(one(engine, "TimeoutStartSec")) >= timings.startup_s
        assert one(engine, "KillMode") == "mixed"
        assert int(one(engine, "TimeoutStopSec")) == timings.grace_s
        assert timings.grace_s > timings.shutdown_s + timings.worker_exit_s
        assert one(engine, "Restart") == "on-failure"
        burst = int(one(engine, "StartLimitBurst", "Unit"))
        # the limit must still hold when every start runs into its timeout
        assert int(one(engine, "StartLimitIntervalSec", "Unit")) > burst * timings.startup_s
        assert "network-online.target" in one(engine, "After", "Unit").split()
        assert one(engine, "NoNewPrivileges") == "yes"
        assert one(engine, "ProtectSystem") == "strict"
        assert one(engine, "User") == "vllm"
        assert engine.commands("ExecStartPre")[0][2] == "preflight"


def test_preflight_names_what_the_engine_needs():
    (amd,) = unit(five_nodes(), "chat-prefill@0").commands("ExecStartPre")
    assert amd[3:] == ("amd", "0,1,2,3,4,5,6,7", "rdma", str(16 * 2**30))
    (nvidia,) = unit(one_box(), "chat-decode@2").commands("ExecStartPre")
    assert nvidia[3:6] == ("nvidia", "6", "no-rdma")


def test_start_waits_for_an_answer_on_the_own_address():
    (ready,) = unit(five_nodes(), "chat-decode@1").commands("ExecStartPost")
    assert ready[3:] == ("http://10.0.0.3:20000/health", "1990")
    assert unit(multi_node(), "chat-prefill@0.1").commands("ExecStartPost") == ()


def test_engines_of_one_host_start_one_after_the_other():
    plan = one_box()
    order = [f"chat-prefill@{i}" for i in range(4)] + [f"chat-decode@{i}" for i in range(4)]
    for before, after in itertools.pairwise(order):
        assert f"disaggc-{before}.service" in one(unit(plan, after), "After", "Unit").split()
    assert one(unit(plan, order[0]), "After", "Unit") == "network-online.target"


def test_starts_never_wait_in_a_circle():
    plan = multi_node()
    after = {
        path.rpartition("/")[2]: [x for x in one(u, "After", "Unit").split() if x.startswith("disaggc-")]
        for path, u in engines(plan).items()
    }
    done: set[str] = set()
    while len(done) < len(after):
        ready = [name for name in after if name not in done and set(after[name]) <= done]
        assert ready
        done.update(ready)


def test_proxy_wants_its_engines_and_requires_none():
    proxy = unit(five_nodes(), "chat-proxy@0")
    assert "disaggc-chat-prefill@0.service" in one(proxy, "Wants", "Unit").split()
    assert proxy.raw("Unit", "Requires") == ()
    assert "disaggc" not in one(proxy, "After", "Unit")
    assert proxy.commands("ExecStart") == (
        ("/usr/local/bin/disaggc", "proxy", "--config", "/etc/disaggc/chat/routing.json"),
    )
    assert int(one(proxy, "TimeoutStopSec")) >= 1500


def test_secrets_come_from_files_and_never_stand_in_a_unit():
    plan = five_nodes(Texts(secrets=(("HF_TOKEN", "hf"), ("OTHER", "other.key"))))
    engine = unit(plan, "chat-prefill@0")
    assert engine.lines("Service", "EnvironmentFile") == (
        "/etc/disaggc/secrets/hf",
        "/etc/disaggc/secrets/other.key",
    )
    assert not {"HF_TOKEN", "OTHER"} & set(engine.environment())
    assert engine.commands("ExecStartPre")[0][-2:] == ("HF_TOKEN", "OTHER")
    assert unit(plan, "chat-proxy@0").lines("Service", "EnvironmentFile") == (
        "/etc/disaggc/secrets/DISAGGC_API_KEY",
    )


@pytest.mark.parametrize(
    ("plan", "devices"),
    [
        (five_nodes(), {"/dev/kfd", "char-drm", "char-infiniband*", "/dev/infiniband/rdma_cm"}),
        (one_box(), {"char-nvidia*"}),
        (multi_node(), {"char-nvidia*", "char-infiniband*", "/dev/infiniband/rdma_cm"}),
        (colocated(), {"/dev/kfd", "char-drm"}),
    ],
)
def test_only_the_devices_an_engine_uses(plan, devices):
    for engine in engines(plan).values():
        assert {text.removesuffix(" rw") for text in engine.raw("Service", "DeviceAllow")} == devices
        assert one(engine, "DevicePolicy") == "closed"


def test_engines_talk_to_the_clusters_nodes_only():
    engine = unit(five_nodes(), "chat-decode@0")
    assert one(engine, "IPAddressDeny") == "any"
    assert one(engine, "IPAddressAllow").split() == ["localhost", *(f"10.0.0.{i}" for i in range(1, 6))]
    (command,) = engine.commands("ExecStart")
    assert command[command.index("--host") + 1] == "10.0.0.2"


def test_engines_that_fetch_weights_cannot_be_fenced_in_and_this_is_said():
    assert codes(one_box(), SETTINGS) == ["DGC605"]
    assert unit(one_box(), "chat-prefill@0").raw("Service", "IPAddressDeny") == ()
    offline = Texts(
        model="openai/gpt-oss-120b", weights="openai/gpt-oss-120b", env=(("HF_HUB_OFFLINE", "1"),)
    )
    assert codes(one_box(offline), SETTINGS) == []
    assert one(unit(one_box(offline), "chat-prefill@0"), "IPAddressDeny") == "any"


def test_shared_memory_is_the_engines_own_unless_kv_moves_inside_the_host():
    mount, _, options = one(unit(five_nodes(), "chat-prefill@0"), "TemporaryFileSystem").partition(":")
    assert mount.endswith("/shm")
    assert options == f"size={16 * 2**30},mode=1777"
    assert unit(one_box(), "chat-prefill@0").raw("Service", "TemporaryFileSystem") == ()


def test_each_engine_sees_its_own_accelerators():
    assert unit(one_box(), "chat-decode@3").environment()["CUDA_VISIBLE_DEVICES"] == "7"
    assert unit(five_nodes(), "chat-decode@3").environment()["HIP_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"


def test_engines_of_a_host_share_what_they_download():
    engine = unit(one_box(), "chat-decode@3")
    assert engine.environment()["HF_HOME"] == "/var/cache/disaggc/huggingface"
    assert one(engine, "CacheDirectory").split() == ["disaggc/chat-decode@3", "disaggc/huggingface"]
    own = one_box(Texts(model="a/b", weights="a/b", env=(("HF_HOME", "/data/hf"),)))
    assert unit(own, "chat-decode@3").environment()["HF_HOME"] == "/data/hf"
    assert "HF_HOME" not in unit(five_nodes(), "chat-decode@3").environment()


def test_a_proxy_outlives_the_engines_it_answers_for():
    plan = five_nodes()
    service = plan.services[0]
    short = service.model_copy(update={"proxy": service.proxy.model_copy(update={"drain_s": 1})})
    plan = plan.model_copy(update={"services": (short,)})
    longest = max(pool.timings.grace_s for pool in service.pools)
    assert int(one(unit(plan, "chat-proxy@0"), "TimeoutStopSec")) > longest


def test_homes_stay_readable_only_where_something_lies_there():
    assert one(unit(five_nodes(), "chat-prefill@0"), "ProtectHome") == "yes"
    plan = five_nodes(Texts(weights="/home/models/x"))
    assert one(unit(plan, "chat-prefill@0"), "ProtectHome") == "read-only"


def test_settings_reach_every_unit():
    settings = SystemdTarget(run_as="llm", directory="/srv/disaggc/")
    found = files(five_nodes(), settings)
    assert "gpu-01/srv/disaggc/chat/routing.json" in found
    for unit_ in units(five_nodes(), settings).values():
        assert one(unit_, "User") == "llm"
    proxy = next(u for p, u in units(five_nodes(), settings).items() if "-proxy@" in p)
    assert proxy.commands("ExecStart")[0][-1] == "/srv/disaggc/chat/routing.json"


def test_count_without_addresses_is_an_error_at_the_group():
    (found,) = findings(count_only(), SETTINGS)
    assert (found.code, found.severity, found.path) == (
        "DGC604",
        Severity.ERROR,
        ("cluster", "nodes", "pool"),
    )


def test_a_proxy_may_use_a_low_port():
    plan = five_nodes()
    service = plan.services[0]
    low = service.model_copy(update={"proxy": service.proxy.model_copy(update={"port": 443})})
    proxy = unit(plan.model_copy(update={"services": (low,)}), "chat-proxy@0")
    assert one(proxy, "AmbientCapabilities") == "CAP_NET_BIND_SERVICE"
    assert proxy.raw("Service", "PrivateUsers") == ()


def test_what_systemd_does_not_have():
    plan = five_nodes(Texts(api_key=None, api_key_secret=("name", "key")))
    assert codes(plan, SETTINGS) == ["DGC602"]
    service = plan.services[0]
    bare = service.model_copy(update={"engine": service.engine.model_copy(update={"command": None})})
    assert codes(plan.model_copy(update={"services": (bare,)}), SETTINGS) == ["DGC602", "DGC602"]


def test_routing_file_lies_beside_every_proxy():
    found = files(flexible(), SETTINGS)
    tables = {path: load_table(a.text) for path, a in found.items() if path.endswith("routing.json")}
    assert sorted(tables) == ["gpu-01/etc/disaggc/chat/routing.json", "gpu-02/etc/disaggc/chat/routing.json"]
    table = next(iter(tables.values()))
    assert table.proxies == 2
    assert [r.host for r in table.pools[0].replicas] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert table.pools[0].split == (1, 2)
    assert json.loads(found["gpu-01/etc/disaggc/chat/routing.json"].text)["fingerprint"].startswith("sha256:")


def test_each_proxy_tells_its_metrics_on_its_own_node():
    plan = five_nodes()
    (service,) = plan.services
    instances = tuple(
        ProxyInstance(address=f"chat/proxy/{i}", node=node) for i, node in enumerate(("gpu-01", "gpu-03"))
    )
    proxy = service.proxy.model_copy(update={"instances": instances})
    plan = plan.model_copy(update={"services": (service.model_copy(update={"proxy": proxy}),)})
    own = files(plan, SETTINGS)
    for host, address in (("gpu-01", "10.0.0.1"), ("gpu-03", "10.0.0.3")):
        table = load_table(own[f"{host}/etc/disaggc/chat/routing.json"].text)
        assert (table.listen.metrics_host, table.listen.metrics_port) == (address, 19500)
        assert table.listen.admin_host == "127.0.0.1"
