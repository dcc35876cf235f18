"""More proxies than nodes.

Proxy replicas run on different nodes, so that one node's loss leaves the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`proxy.replicas` above the nodes of the cluster."""
    nodes = sum(len(group.nodes) for group in resolved.groups)
    for service in resolved.services:
        replicas = service.given.proxy.replicas
        if replicas > nodes:
            yield Finding(
                f"`replicas` {replicas} of the proxy exceed the {nodes} nodes of the cluster",
                at(service, "proxy", "replicas"),
                help=f"write at most `replicas: {nodes}`",
            )


RULE = SpecRule(
    "DGC802",
    "proxy-replicas",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        """
        services: {chat: {proxy: {replicas: 9, policy: round-robin}}}
        #                                   ^ DGC802
        """,
    ),
    passes=("services: {chat: {proxy: {replicas: 2, policy: round-robin}}}",),
)
