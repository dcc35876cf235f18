"""Two listeners on one port of one node.

The second one fails to bind, or worse: with equal RPC and HTTP ports the engine answers HTTP with its own protocol
and logs nothing. Ranges count: one side channel for each data-parallel rank, and a block for the engine's internal
ports.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import FieldPath, Severity
from disaggc.ir.plan import DeploymentPlan, Ports
from disaggc.rules.planned import replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Every port and range of engines and proxies, node by node."""
    by_node: dict[str, list[tuple[range, str, FieldPath]]] = {}
    for node, ports, owner, path in _listeners(planned.plan):
        by_node.setdefault(node, []).append((ports, owner, path))
    for node in sorted(by_node):
        listeners = sorted(by_node[node], key=lambda item: (item[0].start, item[1]))
        widest = listeners[0]
        for listener in listeners[1:]:
            if listener[0].start < widest[0].stop:
                yield Finding(
                    f"port {listener[0].start} of {node} belongs to {widest[1]} and to {listener[1]}",
                    listener[2],
                )
            if listener[0].stop > widest[0].stop:
                widest = listener


def _listeners(plan: DeploymentPlan) -> Iterator[tuple[str, range, str, FieldPath]]:
    for service, _, replica in replicas(plan):
        for slot in replica.slots:
            for name, ports in port_ranges(replica.ports):
                yield slot.node, ports, f"{name} of {replica.address}", service_path(service)
    for service in plan.services:
        for instance in service.proxy.instances:
            proxy = service.proxy
            for name, port in (
                ("clients", proxy.port),
                ("administration", proxy.admin_port),
                ("metrics", proxy.metrics_port),
            ):
                if port is not None:
                    yield (
                        instance.node,
                        range(port, port + 1),
                        f"{name} of {instance.address}",
                        service_path(service),
                    )


def port_ranges(ports: Ports) -> Iterator[tuple[str, range]]:
    """Every range a replica listens on, with its name."""
    width = max(1, ports.side_channel_width)
    yield "http", range(ports.http, ports.http + 1)
    yield "internal ports", range(ports.internal, ports.internal + ports.internal_width)
    for name, first, count in (
        ("side channel", ports.side_channel, width),
        ("notify", ports.notify, width),
        ("bootstrap", ports.bootstrap, 1),
        ("data-parallel rpc", ports.dp_rpc, 1),
        ("master", ports.master, 1),
    ):
        if first is not None:
            yield name, range(first, first + count)


RULE = PlanRule(
    "DGC453",
    "ports-overlap",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/20119",
        "https://github.com/vllm-project/vllm/issues/20965",
        "https://github.com/vllm-project/vllm/issues/25059",
    ),
    fails=(
        (
            Edit("services/chat/pools/decode/replicas/0/ports/dp_rpc", 20000),
            Edit("services/chat/pools/decode/replicas/0/ports/http", 20000),
        ),
        (Edit("services/chat/proxy/port", 20000),),
    ),
)
