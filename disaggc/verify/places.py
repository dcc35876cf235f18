"""Where replicas stand: nodes that exist and are what the spec says, slots that can hold the shape.

Double use of devices, device numbers and ports are plan rules; this looks at what needs the facts.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Diagnostic, FieldPath, error
from disaggc.ir.plan import DeploymentPlan, Node, Pool, Replica
from disaggc.resolve.model import NodeGroupFacts, NodeRef, ResolvedSpec


def broken_places(plan: DeploymentPlan, resolved: ResolvedSpec) -> Iterator[Diagnostic]:
    """DGC341 for nodes, DGC342 for slots."""
    facts = {node.name: (node, group) for group in resolved.groups for node in group.nodes}
    for node in plan.nodes:
        yield from _node(node, facts.get(node.name))
    named = {node.name: node for node in plan.nodes}
    for service in plan.services:
        path = ("services", service.name)
        for pool in service.pools:
            for replica in pool.replicas:
                yield from _slots(pool, replica, named=named, path=path)
        for instance in service.proxy.instances:
            if instance.node not in named:
                yield error("DGC341", f"{instance.address} stands on {instance.node}, which is no node", path)


def _node(node: Node, known: tuple[NodeRef, NodeGroupFacts] | None) -> Iterator[Diagnostic]:
    if known is None:
        yield error(
            "DGC341", f"the plan has node {node.name}, the spec has no such node", ("cluster", "nodes")
        )
        return
    facts, group = known
    told = (node.group, node.address, node.rack, node.vendor, node.accelerator, node.accelerators, node.nics)
    true = (
        group.name,
        facts.address,
        facts.rack,
        group.accelerator.vendor,
        group.accelerator.id,
        group.per_node,
        group.nics,
    )
    for name, said, is_so in zip(
        ("group", "address", "rack", "vendor", "accelerator", "accelerators", "nics"), told, true, strict=True
    ):
        if said != is_so:
            path = ("cluster", "nodes", group.name)
            yield error(
                "DGC341", f"the plan says {name} {said} of node {node.name}, the spec says {is_so}", path
            )


def _slots(pool: Pool, replica: Replica, *, named: dict[str, Node], path: FieldPath) -> Iterator[Diagnostic]:
    """Ranks in order on nodes of the pool's group; tensor-parallel groups that no node boundary cuts through."""
    where = [slot.node for slot in replica.slots]
    if [slot.rank for slot in replica.slots] != list(range(len(where))):
        yield error("DGC342", f"{replica.address} has its nodes out of rank order", path)
    if len(set(where)) != len(where):
        yield error("DGC342", f"{replica.address} has two slots on one node", path)
    if replica.address.split("/")[0] != path[-1]:
        yield error("DGC342", f"{replica.address} stands in service {path[-1]}", path)
    for slot in replica.slots:
        node = named.get(slot.node)
        if node is None:
            yield error(
                "DGC342", f"{replica.address} stands on {slot.node}, which is no node of the plan", path
            )
            continue
        if (node.group, node.accelerator, node.vendor) != (pool.group, pool.accelerator, pool.vendor):
            yield error(
                "DGC342",
                f"{replica.address} stands on {node.name} ({node.accelerator} of {node.group}), "
                f"its pool is {pool.accelerator} of {pool.group}",
                path,
            )
        if len(set(slot.devices)) != len(slot.devices):
            yield error("DGC342", f"{replica.address} names a device of {slot.node} twice", path)
        if len(where) > 1 and len(slot.devices) != node.accelerators:
            yield error("DGC342", f"{replica.address} spans nodes and takes only a part of {slot.node}", path)
        if len(slot.devices) % pool.shape.tp and pool.shape.tp % max(1, len(slot.devices)):
            have = f"{len(slot.devices)} devices of {slot.node}"
            yield error("DGC342", f"{replica.address} has {have}, tp {pool.shape.tp} cannot use them", path)
