"""What a compose file must contain, line by line of the checklist, and the compose schema on every file."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import jsonschema
import pytest

from disaggc.diagnostics.model import Severity
from disaggc.emit.reading.documents import all_interpolated, read_documents
from disaggc.ir.plan import DeploymentPlan
from disaggc.routing.table import load_table
from disaggc.spec.model import ComposeTarget
from tests.emit.emitted import codes, files, findings
from tests.emit.plans import PLANS, Texts, colocated, count_only, five_nodes, flexible, multi_node, one_box

SETTINGS = ComposeTarget()
FITTING = ("colocated", "five-nodes", "flexible", "one-box")


def document(
    plan: DeploymentPlan, host: str = "gpu-01", settings: ComposeTarget = SETTINGS
) -> dict[str, Any]:
    (read,) = read_documents(files(plan, settings)[f"{host}{settings.directory}/compose.yaml"].text)
    found = all_interpolated(read)
    assert isinstance(found, dict)
    return found


def engines(plan: DeploymentPlan, host: str = "gpu-01") -> dict[str, dict[str, Any]]:
    services = document(plan, host)["services"]
    return {
        name: s for name, s in services.items() if "-proxy-" not in name and not name.endswith("-namespaces")
    }


@pytest.mark.parametrize("name", FITTING)
def test_every_file_fits_the_compose_schema(name):
    place = resources.files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json"
    validator = jsonschema.Draft7Validator(json.loads(place.read_text(encoding="utf-8")))
    seen = 0
    for path, artifact in files(PLANS[name](), SETTINGS).items():
        if path.endswith("compose.yaml"):
            (read,) = read_documents(artifact.text)
            assert [error.message for error in validator.iter_errors(read)] == []
            seen += 1
    assert seen


def test_one_project_per_host():
    plan = five_nodes()
    assert sorted(p for p in files(plan, SETTINGS) if p.endswith("compose.yaml")) == [
        f"gpu-0{i}/etc/disaggc/compose.yaml" for i in range(1, 6)
    ]
    assert sorted(document(plan)["services"]) == ["chat-prefill-0", "chat-proxy-0"]
    assert sorted(document(plan, "gpu-03")["services"]) == ["chat-decode-1"]
    assert document(plan)["name"] == "disaggc"


@pytest.mark.parametrize("name", FITTING)
def test_every_engine(name):
    plan = PLANS[name]()
    grace = {p.role.value: p.timings.grace_s for p in plan.services[0].pools}
    startup = plan.services[0].pools[0].timings.startup_s
    for host in {node.name for node in plan.nodes}:
        for engine in engines(plan, host).values():
            assert engine["network_mode"] == "host"
            assert engine["ulimits"] == {"memlock": {"soft": -1, "hard": -1}}
            assert engine["cap_drop"] == ["ALL"]
            assert engine["cap_add"] == ["IPC_LOCK"]
            assert engine["security_opt"] == ["no-new-privileges:true"]
            assert "privileged" not in engine
            assert engine["stop_signal"] == "SIGTERM"
            assert engine["stop_grace_period"] == f"{grace[engine['labels']['dev.disaggc.role']]}s"
            assert engine["restart"] == "unless-stopped"
            assert "@sha256:" in engine["image"]
            assert engine["healthcheck"]["test"][-1].endswith("/v1/models")
            assert engine["healthcheck"]["start_period"] == f"{startup}s"
            assert engine["labels"]["dev.disaggc.cohort"] == "0123456789"


def test_engines_of_one_host_share_namespaces_and_see_all_accelerators():
    plan = one_box()
    services = document(plan)["services"]
    room = services["chat-namespaces"]
    assert room["ipc"] == "shareable"
    assert room["shm_size"] == 8 * 16 * 2**30
    found = engines(plan)
    assert len(found) == 8
    for name, engine in found.items():
        assert engine["pid"] == engine["ipc"] == "service:chat-namespaces"
        assert engine["depends_on"] == ["chat-namespaces"]
        assert "shm_size" not in engine
        reservation = engine["deploy"]["resources"]["reservations"]["devices"]
        assert reservation == [{"driver": "nvidia", "capabilities": ["gpu"], "count": "all"}]
        index = int(name.rpartition("-")[2]) + (4 if "decode" in name else 0)
        assert engine["environment"]["CUDA_VISIBLE_DEVICES"] == str(index)


def test_an_engine_alone_gets_its_own_memory_and_devices():
    engine = engines(five_nodes())["chat-prefill-0"]
    assert engine["shm_size"] == 16 * 2**30
    assert "ipc" not in engine
    assert "pid" not in engine
    assert engine["devices"] == ["/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri", "/dev/infiniband:/dev/infiniband"]
    assert engine["environment"]["HIP_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert "/dev/infiniband:/dev/infiniband" not in engines(colocated())["chat-colocated-0"]["devices"]


def test_nvidia_devices_are_named_when_nothing_is_shared():
    plan = multi_node()
    service = plan.services[0]
    single = service.pools[0].model_copy(
        update={
            "replicas": (
                service.pools[0]
                .replicas[0]
                .model_copy(update={"slots": service.pools[0].replicas[0].slots[:1], "arguments": ()}),
            )
        }
    )
    plan = plan.model_copy(
        update={"services": (service.model_copy(update={"pools": (single,), "links": ()}),)}
    )
    engine = engines(plan)["chat-prefill-0"]
    (reservation,) = engine["deploy"]["resources"]["reservations"]["devices"]
    assert reservation["device_ids"] == [str(i) for i in range(8)]
    # the driver numbers what it shows from 0, so the variable must not name the host's numbers
    assert "CUDA_VISIBLE_DEVICES" not in engine["environment"]


def test_weights_are_mounted_read_only_where_they_lie():
    (mount,) = [v for v in engines(five_nodes())["chat-prefill-0"]["volumes"] if v["type"] == "bind"]
    assert (mount["source"], mount["target"]) == ("/models/DeepSeek-R1", "/models/DeepSeek-R1")
    assert mount["read_only"] is True


def test_engines_of_a_host_share_what_they_download():
    found = engines(one_box())
    for name, engine in found.items():
        assert [v["source"] for v in engine["volumes"]] == [f"{name}-cache", "huggingface"]
    assert set(document(one_box())["volumes"]) == {"huggingface", *(f"{name}-cache" for name in found)}


def test_secrets_come_from_files_and_are_required():
    engine = engines(five_nodes(Texts(secrets=(("HF_TOKEN", "hf"),))))["chat-prefill-0"]
    assert [f["path"] for f in engine["env_file"]] == ["/etc/disaggc/secrets/hf"]
    assert "HF_TOKEN" not in engine["environment"]
    assert engine["entrypoint"][:2] == ["/bin/sh", "-c"]
    assert '"${HF_TOKEN:?' in engine["entrypoint"][2]
    assert engine["command"][:2] == ["vllm", "serve"]


def test_proxy_is_fenced_in():
    proxy = document(five_nodes())["services"]["chat-proxy-0"]
    assert proxy["read_only"] is True
    assert proxy["user"] == "65532:65532"
    assert proxy["cap_drop"] == ["ALL"]
    assert "cap_add" not in proxy
    assert [v["source"] for v in proxy["volumes"]] == ["/etc/disaggc/chat"]
    assert proxy["command"][-1] == "/etc/disaggc/chat/routing.json"


def test_key_file_is_mounted_where_the_routing_file_says():
    plan = five_nodes(Texts(api_key=None, api_key_file="/run/keys/chat"))
    assert "/run/keys/chat" in [v["target"] for v in document(plan)["services"]["chat-proxy-0"]["volumes"]]
    table = load_table(files(plan, SETTINGS)["gpu-01/etc/disaggc/chat/routing.json"].text)
    assert table.api_key is not None
    assert table.api_key.file == "/run/keys/chat"


def test_memory_limit_where_the_host_memory_is_known():
    plan = five_nodes()
    service = plan.services[0]
    pools = tuple(pool.model_copy(update={"host_memory_bytes": 2**40}) for pool in service.pools)
    plan = plan.model_copy(update={"services": (service.model_copy(update={"pools": pools}),)})
    limits = engines(plan)["chat-prefill-0"]["deploy"]["resources"]["limits"]
    assert limits == {"memory": str(2**40)}


def test_replica_on_several_nodes_is_an_error_with_the_numbers():
    found = [d for d in findings(multi_node(), SETTINGS) if d.severity is Severity.ERROR]
    assert [d.code for d in found] == ["DGC602", "DGC602"]
    assert "2 nodes (tp8 pp2)" in found[0].message


def test_what_compose_does_not_have():
    assert codes(count_only(), SETTINGS) == ["DGC604"]
    assert codes(five_nodes(Texts(image=None)), SETTINGS) == ["DGC602", "DGC602"]
    assert codes(five_nodes(Texts(api_key=None, api_key_secret=("a", "b"))), SETTINGS) == ["DGC602"]


def test_proxy_borrows_the_engines_image_and_this_is_said():
    plan = five_nodes(Texts(proxy_image=None))
    assert codes(plan, SETTINGS) == ["DGC606"]
    services = document(plan)["services"]
    assert services["chat-proxy-0"]["image"] == services["chat-prefill-0"]["image"]


def test_a_new_plan_leaves_the_containers_as_they_are():
    plan = flexible()
    later = plan.model_copy(update={"provenance": plan.provenance.model_copy(update={"disaggc": "9.9.9"})})
    before, after = document(plan), document(later)
    assert before["x-disaggc"] != after["x-disaggc"]
    assert before["services"] == after["services"]


def test_a_proxy_tells_its_metrics_on_its_own_node():
    table = load_table(files(five_nodes(), ComposeTarget())["gpu-01/etc/disaggc/chat/routing.json"].text)
    assert (table.listen.metrics_host, table.listen.metrics_port) == ("10.0.0.1", 19500)
    assert table.listen.admin_host == "127.0.0.1"
