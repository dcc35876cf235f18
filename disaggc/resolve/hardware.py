"""The cluster with its facts bound: accelerators from the catalog or the spec, NICs, node names, racks, fabric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from disaggc.catalog.facts import AcceleratorFacts, FabricFacts, Precision
from disaggc.catalog.load import Catalog
from disaggc.diagnostics import Diagnostic, FieldPath, Outcome, Severity, error
from disaggc.resolve.model import NodeGroupFacts, NodeRef, NumaFacts
from disaggc.spec.cluster import Accelerator, Cluster, NodeGroup
from disaggc.spec.names_of_nodes import node_names
from disaggc.spec.near import nearest

_PCIE_BYTES_PER_S = 32e9
"""Gen4 x16, one direction: the link of inline accelerators that name none."""
LOOPBACK = "127.0.0.1"


def resolve_groups(cluster: Cluster, catalog: Catalog) -> Outcome[tuple[NodeGroupFacts, ...]]:
    """Every node group with its facts; none where an accelerator is unknown (DGC201)."""
    groups: list[NodeGroupFacts] = []
    found: list[Diagnostic] = []
    for name, group in cluster.nodes.items():
        path = ("cluster", "nodes", name, "accelerator")
        accelerator = _accelerator(name, group.accelerator, catalog)
        if accelerator is None:
            found.append(_unknown(group.accelerator.type or "", (*path, "type"), catalog))
        else:
            groups.append(_group(name, group, (accelerator, cluster.fabric.speed_per_nic)))
    return Outcome(tuple(groups) if not found else None, tuple(found))


def on_this_machine(groups: Sequence[NodeGroupFacts]) -> tuple[NodeGroupFacts, ...]:
    """The same nodes, all at the loopback address: what target local runs of them, it runs here."""
    return tuple(
        replace(group, nodes=tuple(replace(node, address=LOOPBACK) for node in group.nodes))
        for group in groups
    )


def resolve_fabric(cluster: Cluster, catalog: Catalog) -> FabricFacts:
    """The facts of the fabric's type; the catalog has every type the spec takes."""
    facts = catalog.fabric(cluster.fabric.type)
    if facts is None:
        raise LookupError(f"the catalog has no fabric {cluster.fabric.type}")
    return facts


def _group(name: str, group: NodeGroup, facts: tuple[AcceleratorFacts, float]) -> NodeGroupFacts:
    accelerator, nic_bytes_per_s = facts
    nics = group.nics
    return NodeGroupFacts(
        name=name,
        accelerator=accelerator,
        per_node=group.accelerator.per_node,
        nics=nics.per_node if nics is not None else group.accelerator.per_node,
        nic_devices=nics.devices or () if nics is not None else (),
        nic_bytes_per_s=nic_bytes_per_s,
        price=group.price,
        cpu_memory_bytes=group.cpu_memory,
        nodes=tuple(_nodes(name, group)),
        numa=tuple(NumaFacts(domain.devices, domain.cpus) for domain in group.numa or ()),
    )


def _nodes(name: str, group: NodeGroup) -> Iterator[NodeRef]:
    racks = {host: rack for rack, hosts in (group.racks or {}).items() for host in hosts}
    for host in node_names(name, group):
        address = group.hosts[host] if group.hosts is not None else None
        yield NodeRef(host, address, racks.get(host), pinned=group.hosts is not None)


def _accelerator(group: str, given: Accelerator, catalog: Catalog) -> AcceleratorFacts | None:
    known = catalog.accelerator(given.type) if given.type is not None else _inline(group, given)
    if known is None:
        return None
    peaks: dict[Precision, float] = dict(known.peak_flops)
    stated: tuple[tuple[Precision, float | None], ...] = (
        ("bf16", given.bf16),
        ("fp8", given.fp8),
        ("fp4", given.fp4),
    )
    peaks |= {precision: peak for precision, peak in stated if peak is not None}
    corrected = replace(
        known,
        vendor=given.vendor or known.vendor,
        memory_bytes=given.memory or known.memory_bytes,
        memory_bandwidth=given.memory_bandwidth or known.memory_bandwidth,
        peak_flops=tuple(sorted(peaks.items())),
        link_bytes_per_s=given.link or known.link_bytes_per_s,
        link_domain=max(known.link_domain, given.per_node) if given.link else known.link_domain,
    )
    return (
        replace(corrected, source=f"{known.source}, corrected in the spec")
        if _differs(known, corrected)
        else known
    )


def _differs(known: AcceleratorFacts, corrected: AcceleratorFacts) -> bool:
    return replace(known, peak_flops=tuple(sorted(known.peak_flops))) != corrected


def _inline(group: str, given: Accelerator) -> AcceleratorFacts:
    """Facts stated in the spec alone; the spec's own checks made sure that they are all there."""
    return AcceleratorFacts(
        id=group,
        vendor=given.vendor or "nvidia",
        memory_bytes=given.memory or 0.0,
        memory_bandwidth=given.memory_bandwidth or 0.0,
        peak_flops=(("bf16", given.bf16 or 0.0),),
        link="link" if given.link else "pcie",
        link_domain=given.per_node,
        link_bytes_per_s=given.link or _PCIE_BYTES_PER_S,
        source="stated in the spec",
    )


def _unknown(name: str, path: FieldPath, catalog: Catalog) -> Diagnostic:
    near = nearest(name, catalog.accelerator_ids)
    hint = f"did you mean `{near}`?" if near else "see `disaggc catalog accelerators`"
    return error(
        "DGC201", f"the catalog has no accelerator `{name}`", path, help=f"{hint} or give its facts inline"
    )


def missing_addresses(cluster: Cluster, target: str) -> list[Diagnostic]:
    """Systemd and compose copy files to hosts: a count of nodes is not enough (DGC604)."""
    return [
        Diagnostic(
            "DGC604",
            Severity.ERROR,
            f"target `{target}` needs the nodes' addresses, `{name}` gives only `count: {group.count}`",
            ("cluster", "nodes", name, "count"),
            help="write `hosts: {gpu-01: 10.0.0.1, ...}`",
            at_key=True,
        )
        for name, group in cluster.nodes.items()
        if group.hosts is None
    ]
