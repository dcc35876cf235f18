"""A target that needs addresses, and nodes that have none.

systemd and compose place processes on named hosts and write their addresses into proxy and engines. `count:` says only
how many nodes there are; Kubernetes alone can find them itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Node groups with `count` where the target is systemd or compose."""
    if resolved.target not in ("systemd", "compose"):
        return
    for name, group in resolved.spec.cluster.nodes.items():
        if group.count is not None:
            yield Finding(
                f"`count` gives no addresses, which target {resolved.target} needs to place {group.count} nodes",
                ("cluster", "nodes", name, "count"),
                help="write `hosts: {gpu-01: 10.0.0.1, ...}` instead of `count`",
                at_key=True,
            )


RULE = SpecRule(
    "DGC604",
    "missing-address",
    Severity.ERROR,
    check,
    sources=("systemd and compose have no discovery of their own",),
    fails=(
        """
        cluster: {nodes: {h200: {count: 2, accelerator: {type: h200, per_node: 8}}}}
        #                        ^ DGC604
        services: {chat: {constraints: {prefill: {nodes: [h100]}, decode: {nodes: [h100]}}}}
        """,
    ),
    passes=("cluster: {nodes: {h200: {hosts: {gpu-08: 10.0.0.8}, accelerator: {type: h200, per_node: 8}}}}",),
    suppressible=False,
)
