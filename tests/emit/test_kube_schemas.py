"""Every manifest against the schemas of Kubernetes itself, and custom resources against their definitions."""

from __future__ import annotations

import kubernetes_validate
import pytest

from disaggc.spec.model import KubernetesTarget
from tests.emit.emitted import files, parsed
from tests.emit.kube_schemas import custom_resource
from tests.emit.plans import PLANS, Texts, five_nodes, multi_node

NEWEST = ".".join(kubernetes_validate.latest_version().split(".")[:2])
CUSTOM = {"LeaderWorkerSet", "InferencePool"}


def settings(version: str, *, pool: bool = True) -> KubernetesTarget:
    return KubernetesTarget(
        kube_version=version,
        rdma_resource="rdma/ib",
        monitoring_namespace="monitoring",
        priority_class="high",
        inference_pool=pool,
    )


@pytest.mark.parametrize("version", ["1.28", NEWEST])
@pytest.mark.parametrize("name", sorted(PLANS))
def test_manifests_fit_the_schema(name, version):
    texts = Texts(secrets=(("HF_TOKEN", "hf"),))
    seen = 0
    for path, artifact in files(PLANS[name](texts), settings(version, pool=name != "one-box")).items():
        document = parsed(artifact.text)
        if document["kind"] not in CUSTOM:
            kubernetes_validate.validate(document, version, strict=True)
            seen += 1
        else:
            assert path
    assert seen > 5


def test_a_wrong_manifest_would_be_noticed():
    document = parsed(files(five_nodes(), settings(NEWEST))["chat/prefill-0.yaml"].text)
    document["spec"]["template"]["spec"]["unknown"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, NEWEST, strict=True)


def test_leader_worker_sets_fit_their_definition(shared_data):
    check = custom_resource(shared_data("data/crds/leaderworkerset.x-k8s.io_leaderworkersets.yaml"), "v1")
    found = [
        parsed(artifact.text)
        for path, artifact in files(multi_node(), settings("1.33")).items()
        if path in ("chat/prefill-0.yaml", "chat/decode-0.yaml")
    ]
    assert [d["kind"] for d in found] == ["LeaderWorkerSet", "LeaderWorkerSet"]
    for document in found:
        assert [error.message for error in check.iter_errors(document)] == []
    found[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"][0]["unknown"] = 1
    assert list(check.iter_errors(found[0]))


def test_inference_pools_fit_their_definition(shared_data):
    check = custom_resource(shared_data("data/crds/inference.networking.k8s.io_inferencepools.yaml"), "v1")
    document = parsed(files(five_nodes(), settings("1.33"))["chat/inference-pool.yaml"].text)
    assert [error.message for error in check.iter_errors(document)] == []
    document["spec"]["unknown"] = 1
    assert list(check.iter_errors(document))
