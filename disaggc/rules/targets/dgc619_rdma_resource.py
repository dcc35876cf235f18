"""Pods without RDMA devices on an RDMA fabric.

A pod sees network cards only if it asks for them. Without `rdma_resource` KV moves over TCP: time to first token
grows 5 to 100 times, every request answers 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Target kubernetes, an RDMA fabric, several nodes, KV that may move, and no `rdma_resource`."""
    fabric = resolved.spec.cluster.fabric
    nodes = sum(len(group.nodes) for group in resolved.groups)
    if resolved.target != "kubernetes" or not resolved.fabric.rdma or fabric.allow_tcp or nodes < 2:
        return
    target = resolved.spec.targets.kubernetes
    if (target is None or target.rdma_resource is None) and any(map(transfers_kv, resolved.services)):
        given = target is not None
        yield Finding(
            f"`rdma_resource` is missing while `fabric.type` is {fabric.type}; KV would move over TCP with HTTP 200",
            ("targets", "kubernetes") if given else ("target",),
            help="write `targets.kubernetes.rdma_resource: rdma/ib` (the device plugin's name), "
            "or `cluster.fabric.allow_tcp: true`",
            at_key=given,
        )


RULE = SpecRule(
    "DGC619",
    "rdma-resource",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/26382",
        "https://github.com/llm-d/llm-d/issues/1564",
    ),
    fails=(
        """
        target: kubernetes
        targets: {kubernetes: {rdma_resource: null}}
        #         ^ DGC619
        """,
    ),
    passes=(
        """
        target: kubernetes
        targets: {kubernetes: {rdma_resource: rdma/ib}}
        """,
    ),
)
