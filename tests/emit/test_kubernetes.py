"""What the manifests must contain, line by line of the checklist for Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from disaggc.diagnostics.model import Severity
from disaggc.emit.kubernetes.pods import EnginePod
from disaggc.ir.plan import Argument, DeploymentPlan, NodeRank, Replica, Slot
from disaggc.routing.table import load_table
from disaggc.spec.model import KubernetesTarget
from tests.emit.emitted import codes, files, findings, parsed
from tests.emit.plans import (
    PLANS,
    Texts,
    colocated,
    count_only,
    five_nodes,
    flexible,
    multi_node,
    node,
    one_box,
)

SETTINGS = KubernetesTarget(namespace="llm", kube_version="1.33", rdma_resource="rdma/ib")
assert EnginePod  # the view's type is part of what read-back compares


def objects(plan: DeploymentPlan, settings: KubernetesTarget = SETTINGS) -> dict[str, dict[str, Any]]:
    return {path: parsed(artifact.text) for path, artifact in files(plan, settings).items()}


def pods(plan: DeploymentPlan, settings: KubernetesTarget = SETTINGS) -> dict[str, dict[str, Any]]:
    """Engine pod templates by path; `+worker` for the later nodes of a replica."""
    found = {}
    for path, thing in objects(plan, settings).items():
        if thing["kind"] == "StatefulSet":
            found[path] = thing["spec"]["template"]
        if thing["kind"] == "LeaderWorkerSet":
            group = thing["spec"]["leaderWorkerTemplate"]
            found |= {path: group["leaderTemplate"], f"{path}+worker": group["workerTemplate"]}
    return found


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def env(pod: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container(pod)["env"]}


def of_kind(plan: DeploymentPlan, kind: str, settings: KubernetesTarget = SETTINGS) -> list[dict[str, Any]]:
    return [thing for thing in objects(plan, settings).values() if thing["kind"] == kind]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_line_1_plan_and_compiler_are_marked_and_images_are_digests(name):
    for thing in objects(PLANS[name]()).values():
        marks = thing["metadata"]["annotations"]
        assert marks["disaggc.dev/compiler"] == "0.1.0"
        assert marks["disaggc.dev/plan"].startswith("sha256:")
        assert marks["disaggc.dev/spec"].startswith("sha256:")
        assert thing["metadata"]["namespace"] == "llm"
    assert {container(pod)["image"].rpartition("@")[2][:7] for pod in pods(PLANS[name]()).values()} == {
        "sha256:"
    }


def test_line_2_roles_and_failure_policy_are_written_out():
    for path, pod in pods(five_nodes()).items():
        args = container(pod)["args"]
        config = yaml.safe_load(args[args.index("--kv-transfer-config") + 1])
        assert config["kv_role"] == ("kv_producer" if "prefill" in path else "kv_consumer")
        assert config["kv_load_failure_policy"] == "fail"


def test_line_3_side_channel_is_the_pods_own_address_and_declared():
    for pod in pods(five_nodes()).values():
        own = {"fieldRef": {"fieldPath": "status.podIP"}}
        assert env(pod)["VLLM_NIXL_SIDE_CHANNEL_HOST"] == own
        declared = {port["containerPort"] for port in container(pod)["ports"]}
        assert int(env(pod)["VLLM_NIXL_SIDE_CHANNEL_PORT"]) in declared
        args = container(pod)["args"]
        assert args[args.index("--host") + 1] == "$(DISAGGC_POD_IP)"
        assert container(pod)["env"][0]["name"] == "DISAGGC_POD_IP"


def test_line_3_the_side_channel_is_as_wide_as_data_parallelism():
    wide = next(pod for path, pod in pods(multi_node()).items() if "decode" in path)
    named = {port["name"]: port["containerPort"] for port in container(wide)["ports"]}
    assert [named[f"kv-{i}"] for i in range(16)] == list(range(20004, 20020))
    assert {"http", "dp-rpc", "master"} <= set(named)


def test_line_4_both_roles_get_the_same_of_what_must_be_equal():
    plan = five_nodes(Texts(revision="abc", settings=(("dtype", "bfloat16"),)))
    flags = ("--served-model-name", "--revision", "--block-size", "--dtype", "--max-model-len")
    seen = set()
    for pod in pods(plan).values():
        args = container(pod)["args"]
        seen.add((*tuple(args[args.index(flag) + 1] for flag in flags), env(pod)["PYTHONHASHSEED"]))
    assert len(seen) == 1


def test_line_5_probes():
    plan = five_nodes()
    for pod in pods(plan).values():
        engine = container(pod)
        start, ready, live = engine["startupProbe"], engine["readinessProbe"], engine["livenessProbe"]
        assert start["httpGet"] == ready["httpGet"] == {"path": "/v1/models", "port": "http"}
        assert start["initialDelaySeconds"] + start["periodSeconds"] * start["failureThreshold"] >= 1990
        assert (ready["periodSeconds"], ready["failureThreshold"]) == (5, 3)
        assert live["httpGet"]["path"] == "/health"
        assert (live["periodSeconds"], live["failureThreshold"], live["timeoutSeconds"]) == (10, 3, 5)


def test_line_5_later_nodes_answer_no_http_and_are_not_asked():
    worker = container(pods(multi_node())["chat/prefill-0.yaml+worker"])
    assert not {"startupProbe", "readinessProbe", "livenessProbe"} & set(worker)


@pytest.mark.parametrize("name", sorted(PLANS))
def test_line_6_grace_covers_pause_drain_and_exit(name):
    plan = PLANS[name]()
    pools = {pool.role.value: pool for pool in plan.services[0].pools}
    for pod in pods(plan).values():
        timings = pools[pod["metadata"]["labels"]["disaggc.dev/role"]].timings
        pause = container(pod)["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pause == timings.pre_stop_s == 15
        grace = pod["spec"]["terminationGracePeriodSeconds"]
        assert grace > pause + timings.shutdown_s + timings.worker_exit_s
    (proxy,) = of_kind(plan, "Deployment")
    assert proxy["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= max(
        pool.timings.grace_s for pool in pools.values()
    )


def test_line_6_the_pause_is_a_program_before_1_30():
    pod = next(
        iter(pods(five_nodes(), KubernetesTarget(kube_version="1.29", rdma_resource="rdma/ib")).values())
    )
    assert container(pod)["lifecycle"]["preStop"] == {"exec": {"command": ["sleep", "15"]}}


def test_line_7_engines_keep_connections_longer_than_the_proxy():
    plan = five_nodes()
    table = load_table(objects(plan)["chat/routing.yaml"]["data"]["routing.json"])
    for pod in pods(plan).values():
        assert int(env(pod)["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > table.timeouts.idle_upstream_s


def test_line_8_shared_memory_is_bounded_cleared_and_inside_the_limit():
    plan = five_nodes()
    service = plan.services[0]
    pools = tuple(pool.model_copy(update={"host_memory_bytes": 2**40}) for pool in service.pools)
    plan = plan.model_copy(update={"services": (service.model_copy(update={"pools": pools}),)})
    for pod in pods(plan).values():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        shm = volumes["shm"]["emptyDir"]
        assert shm["medium"] == "Memory"
        assert int(shm["sizeLimit"]) == 16 * 2**30
        assert int(shm["sizeLimit"]) < int(container(pod)["resources"]["limits"]["memory"])
        assert "find /dev/shm -type f -delete" in container(pod)["command"][2]
        mounts = {mount["mountPath"] for mount in container(pod)["volumeMounts"]}
        assert {"/.cache", "/.config", "/.triton"} <= mounts
        assert any(
            m["name"] == "shm" and m["mountPath"].endswith("/shm") for m in container(pod)["volumeMounts"]
        )


def test_line_9_devices_capabilities_and_never_privileged():
    for pod in pods(five_nodes()).values():
        engine = container(pod)
        assert engine["resources"]["requests"] == engine["resources"]["limits"]
        assert engine["resources"]["limits"] == {"amd.com/gpu": "8", "rdma/ib": "1"}
        security = engine["securityContext"]
        assert security["privileged"] is False
        assert security["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
        assert pod["spec"]["tolerations"] == [
            {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        ]


def test_line_9_the_resources_of_the_spec_win():
    settings = KubernetesTarget(accelerator_resource="x.org/gpu", rdma_resource="x.org/efa", rdma_count=8)
    (pod, *_) = pods(five_nodes(), settings).values()
    assert container(pod)["resources"]["limits"] == {"x.org/gpu": "8", "x.org/efa": "8"}


def test_line_10_a_link_inside_the_node_is_not_there_for_pods():
    lost = [d for d in findings(one_box(), KubernetesTarget()) if d.severity is Severity.ERROR]
    assert [d.code for d in lost] == ["DGC602"]
    assert "DGC602" in codes(one_box(), SETTINGS)
    for settings, asks in ((KubernetesTarget(), True), (SETTINGS, False)):
        (found,) = [d for d in findings(one_box(), settings) if d.code == "DGC602"]
        assert ("set `rdma_resource`" in (found.help or "")) is asks
        assert "that predictions count on" in found.message
    assert pods(one_box(), SETTINGS)


def test_line_10_no_pod_opens_the_hosts_namespaces():
    for name in PLANS:
        for pod in pods(PLANS[name]()).values():
            assert not {"hostPID", "hostIPC", "hostNetwork"} & set(pod["spec"])
            assert pod["spec"]["enableServiceLinks"] is False
            assert pod["spec"]["automountServiceAccountToken"] is False


def test_placement_pins_named_hosts_only():
    pinned = pods(five_nodes())
    assert pinned["chat/decode-3.yaml"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "gpu-05"}
    assert "affinity" not in pinned["chat/decode-3.yaml"]["spec"]
    for pod in pods(count_only()).values():
        assert "nodeSelector" not in pod["spec"]
        (term,) = pod["spec"]["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


def test_several_groups_without_host_names_are_told_apart_by_a_label():
    plan = count_only()
    other = node(9, "amd", pinned=False).model_copy(update={"group": "other"})
    plan = plan.model_copy(update={"nodes": (*plan.nodes, other)})
    for pod in pods(plan).values():
        assert pod["spec"]["nodeSelector"] == {"disaggc.dev/node-group": "pool"}
    assert "DGC602" in codes(plan, SETTINGS)


def test_line_12_the_proxy_is_fenced_in():
    (proxy,) = of_kind(five_nodes(), "Deployment")
    pod = proxy["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = pod["containers"][0]["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    # ready needs engines, alive does not: without engines the proxy says so instead of being restarted
    assert pod["containers"][0]["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert pod["containers"][0]["livenessProbe"]["httpGet"]["path"] == "/health"


def test_line_12_a_low_port_is_mapped_because_the_proxy_is_not_root():
    plan = five_nodes()
    service = plan.services[0]
    low = service.model_copy(update={"proxy": service.proxy.model_copy(update={"port": 443})})
    found = objects(plan.model_copy(update={"services": (low,)}))
    assert found["chat/proxy-service.yaml"]["spec"]["ports"][0]["port"] == 443
    listens = found["chat/proxy.yaml"]["spec"]["template"]["spec"]["containers"][0]["ports"][0][
        "containerPort"
    ]
    assert load_table(found["chat/routing.yaml"]["data"]["routing.json"]).listen.port == listens == 8080


def test_line_13_both_roles_carry_one_revision():
    assert {pod["metadata"]["labels"]["disaggc.dev/cohort"] for pod in pods(five_nodes()).values()} == {
        "0123456789"
    }
    for thing in of_kind(five_nodes(), "StatefulSet"):
        # a selector cannot change, so the revision is not part of it
        assert "disaggc.dev/cohort" not in thing["spec"]["selector"]["matchLabels"]


def test_line_14_budgets_and_a_warning_for_single_replicas():
    plan = five_nodes()
    budgets = {b["metadata"]["name"]: b for b in of_kind(plan, "PodDisruptionBudget")}
    assert sorted(budgets) == ["disaggc-chat-decode", "disaggc-chat-prefill"]
    for budget in budgets.values():
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["apiVersion"] == "policy/v1"
    (warned,) = [d for d in findings(plan, SETTINGS) if d.code == "DGC607"]
    assert "chat/prefill" in warned.message
    old = of_kind(plan, "PodDisruptionBudget", KubernetesTarget(kube_version="1.20", rdma_resource="a/b"))
    assert {b["apiVersion"] for b in old} == {"policy/v1beta1"}
    settings = KubernetesTarget(priority_class="high")
    assert {p["spec"]["priorityClassName"] for p in pods(five_nodes(), settings).values()} == {"high"}


def test_line_16_secrets_by_reference_only():
    plan = five_nodes(Texts(secrets=(("HF_TOKEN", "hf"),)))
    reference = {"secretKeyRef": {"name": "disaggc-chat", "key": "hf"}}
    assert {str(env(pod)["HF_TOKEN"]) for pod in pods(plan).values()} == {str(reference)}
    (proxy,) = of_kind(plan, "Deployment")
    (key,) = proxy["spec"]["template"]["spec"]["containers"][0]["env"]
    assert key["valueFrom"] == {"secretKeyRef": {"name": "disaggc-chat", "key": "DISAGGC_API_KEY"}}
    own = five_nodes(Texts(api_key=None, api_key_secret=("keys", "chat")))
    (proxy,) = of_kind(own, "Deployment")
    (key,) = proxy["spec"]["template"]["spec"]["containers"][0]["env"]
    assert key["valueFrom"] == {"secretKeyRef": {"name": "keys", "key": "chat"}}
    table = load_table(objects(own)["chat/routing.yaml"]["data"]["routing.json"])
    assert table.api_key is not None
    assert table.api_key.env == key["name"]


def test_line_16_network_policies():
    settings = KubernetesTarget(monitoring_namespace="monitoring", rdma_resource="rdma/ib")
    policies = {p["metadata"]["name"]: p["spec"] for p in of_kind(five_nodes(), "NetworkPolicy", settings)}
    deny = policies["disaggc-chat-deny"]
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & set(deny)
    engines = policies["disaggc-chat-engines"]
    by_proxy, by_engines, by_monitoring = engines["ingress"]
    assert by_proxy["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "proxy"
    assert by_proxy["ports"] == [{"protocol": "TCP", "port": 20000}]
    assert by_engines["from"][0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "engine"
    assert "ports" not in by_engines
    selector = by_monitoring["from"][0]["namespaceSelector"]["matchLabels"]
    assert selector == {"kubernetes.io/metadata.name": "monitoring"}
    assert {} not in engines["egress"]
    by_anyone, by_prometheus = policies["disaggc-chat-proxies"]["ingress"]
    assert by_anyone == {"ports": [{"protocol": "TCP", "port": 8000}]}
    assert by_prometheus == {"from": by_monitoring["from"], "ports": [{"protocol": "TCP", "port": 19500}]}
    fetching = [p["spec"] for p in of_kind(five_nodes(Texts(weights="a/b", model="a/b")), "NetworkPolicy")]
    assert [{}] in [spec.get("egress") for spec in fetching]
    for spec in policies.values():
        labels = spec["podSelector"]["matchLabels"]
        assert labels["disaggc.dev/service"] == "chat"


def test_metrics_of_a_proxy_leave_its_pod_and_administration_does_not():
    plan = five_nodes()
    table = load_table(objects(plan)["chat/routing.yaml"]["data"]["routing.json"])
    assert (table.listen.metrics_host, table.listen.metrics_port) == ("0.0.0.0", 19500)  # noqa: S104
    assert table.listen.admin_host == "127.0.0.1"
    (proxy,) = of_kind(plan, "Deployment")
    ports = {port["name"]: port["containerPort"] for port in container(proxy["spec"]["template"])["ports"]}
    assert ports == {"http": 8000, "metrics": 19500}
    (closed,) = [
        p["spec"]["ingress"]
        for p in of_kind(plan, "NetworkPolicy")
        if p["metadata"]["name"] == "disaggc-chat-proxies"
    ]
    assert closed == [{"ports": [{"protocol": "TCP", "port": 8000}]}], "no namespace was named"


def test_replicas_on_several_nodes_become_leader_worker_sets():
    plan = multi_node()
    (decode, prefill) = of_kind(plan, "LeaderWorkerSet")
    assert prefill["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert prefill["spec"]["leaderWorkerTemplate"]["size"] == 2
    leader = container(decode["spec"]["leaderWorkerTemplate"]["leaderTemplate"])["args"]
    worker = container(decode["spec"]["leaderWorkerTemplate"]["workerTemplate"])["args"]
    for args in (leader, worker):
        assert args[args.index("--data-parallel-address") + 1] == "$(LWS_LEADER_ADDRESS)"
    assert "--headless" in worker
    assert "--headless" not in leader
    assert worker[worker.index("--data-parallel-start-rank") + 1] == "8"
    placed = prefill["spec"]["leaderWorkerTemplate"]
    assert placed["leaderTemplate"]["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "gpu-01"}
    terms = placed["workerTemplate"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["gpu-02"]
    table = load_table(objects(plan)["chat/routing.yaml"]["data"]["routing.json"])
    assert table.pools[0].replicas[0].host == "disaggc-chat-prefill-0-0.disaggc-chat-prefill-0.llm.svc"


def test_ranks_beyond_the_second_node_are_computed_in_the_pod():
    plan = multi_node()
    service = plan.services[0]
    replica: Replica = service.pools[1].replicas[0]
    three = tuple(Slot(node=f"gpu-0{i + 1}", rank=i, devices=tuple(range(8))) for i in range(3))
    rank = Argument(flag="--data-parallel-start-rank", value=NodeRank(times=8), other_nodes_only=True)
    arguments = (*tuple(a for a in replica.arguments if a.flag != rank.flag), rank)
    pool = service.pools[1].model_copy(
        update={"replicas": (replica.model_copy(update={"slots": three, "arguments": arguments}),)}
    )
    plan = plan.model_copy(update={"services": (service.model_copy(update={"pools": (pool,), "links": ()}),)})
    worker = container(pods(plan)["chat/decode-0.yaml+worker"])
    # Kubernetes reads `$$` as `$`
    assert (
        worker["command"][2]
        .replace("$$", "$")
        .endswith('exec "$@" --data-parallel-start-rank "$((LWS_WORKER_INDEX * 8 + 0))"')
    )
    assert "--data-parallel-start-rank" not in worker["args"]


def test_routing_names_pods_and_their_ports():
    table = load_table(objects(five_nodes())["chat/routing.yaml"]["data"]["routing.json"])
    hosts = [replica.host for pool in table.pools for replica in pool.replicas]
    assert hosts[0] == "disaggc-chat-prefill-0-0.disaggc-chat-prefill.llm.svc"
    found = objects(five_nodes())
    for pool in table.pools:
        for replica in pool.replicas:
            name, service, namespace, _ = replica.host.split(".")
            owner = next(o for o in found.values() if o["metadata"]["name"] == name.removesuffix("-0"))
            assert owner["spec"]["serviceName"] == service
            headless = next(
                o for o in found.values() if o["kind"] == "Service" and o["metadata"]["name"] == service
            )
            assert headless["spec"]["clusterIP"] == "None"
            labels = owner["spec"]["template"]["metadata"]["labels"]
            assert headless["spec"]["selector"].items() <= labels.items()
            assert namespace == "llm"


@pytest.mark.parametrize("name", sorted(PLANS))
def test_selectors_find_their_pods_and_no_others(name):
    found = objects(PLANS[name]())
    templates = [t["metadata"]["labels"] for t in pods(PLANS[name]()).values()]
    (proxy,) = [o for o in found.values() if o["kind"] == "Deployment"]
    templates.append(proxy["spec"]["template"]["metadata"]["labels"])
    for thing in found.values():
        selector = thing.get("spec", {}).get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert any(wanted.items() <= labels.items() for labels in templates), thing["metadata"]["name"]
    own = [o["spec"]["selector"]["matchLabels"] for o in found.values() if o["kind"] == "StatefulSet"]
    for selector in own:
        assert sum(selector.items() <= labels.items() for labels in templates) == 1


def test_a_service_called_vllm_gets_no_object_of_that_name():
    plan = five_nodes()
    service = plan.services[0].model_copy(update={"name": "vllm"})
    found = objects(plan.model_copy(update={"services": (service,)}))
    assert all(o["metadata"]["name"].startswith("disaggc-") for o in found.values())


def test_long_names_are_shortened_and_stay_apart():
    plan = five_nodes()
    names = set()
    for name in ("a" * 40, "a" * 39 + "b"):
        service = plan.services[0].model_copy(update={"name": name})
        found = objects(plan.model_copy(update={"services": (service,)}))
        sets = [o["metadata"]["name"] for o in found.values() if o["kind"] == "StatefulSet"]
        assert all(len(one) <= 52 for one in sets)
        assert all(len(o["metadata"]["name"]) <= 63 for o in found.values())
        names |= set(sets)
    assert len(names) == 10


def test_pool_for_gateways_on_request_only():
    assert of_kind(five_nodes(), "InferencePool") == []
    settings = KubernetesTarget(inference_pool=True, rdma_resource="rdma/ib")
    (pool,) = of_kind(five_nodes(), "InferencePool", settings)
    assert pool["apiVersion"] == "inference.networking.k8s.io/v1"
    assert pool["spec"]["targetPorts"] == [{"number": 20000}]
    roles = {pod["metadata"]["labels"]["llm-d.ai/role"] for pod in pods(five_nodes(), settings).values()}
    assert roles == {"prefill", "decode"}
    refused = [d for d in findings(one_box(), settings) if d.severity is Severity.ERROR]
    assert "8 (20000 to 21120)" in refused[0].message


def test_settings_of_volumes_and_accounts():
    settings = KubernetesTarget(model_volume="weights", service_account="own", rdma_resource="rdma/ib")
    for pod in pods(five_nodes(), settings).values():
        volume = next(v for v in pod["spec"]["volumes"] if v["name"] == "weights")
        assert volume["persistentVolumeClaim"]["claimName"] == "weights"
        assert pod["spec"]["serviceAccountName"] == "own"
    assert of_kind(five_nodes(), "ServiceAccount", settings) == []
    assert "DGC602" in codes(five_nodes(Texts(weights="a/b", model="a/b")), settings)


def test_what_kubernetes_cannot_give():
    assert "DGC602" in codes(five_nodes(), KubernetesTarget(kube_version="1.19"))
    assert "DGC602" in codes(five_nodes(Texts(api_key=None, api_key_file="/k")), SETTINGS)
    assert codes(colocated(Texts(image=None)), SETTINGS)[:1] == ["DGC602"]
    assert "DGC606" in codes(colocated(Texts(proxy_image=None)), SETTINGS)


def test_two_proxies_get_a_budget_and_different_nodes():
    names = [b["metadata"]["name"] for b in of_kind(flexible(), "PodDisruptionBudget")]
    assert "disaggc-chat-proxy" in names
    (proxy,) = of_kind(flexible(), "Deployment")
    assert proxy["spec"]["replicas"] == 2
    assert "podAntiAffinity" in proxy["spec"]["template"]["spec"]["affinity"]


def test_a_new_plan_restarts_no_pod():
    plan = five_nodes()
    later = plan.model_copy(update={"provenance": plan.provenance.model_copy(update={"disaggc": "9.9.9"})})
    before, after = files(plan, SETTINGS), files(later, SETTINGS)
    for path, artifact in before.items():
        if path != "chat/routing.yaml":
            assert artifact.text != after[path].text
        assert artifact.digest == after[path].digest
    assert {str(pod) for pod in pods(plan).values()} == {str(pod) for pod in pods(later).values()}
