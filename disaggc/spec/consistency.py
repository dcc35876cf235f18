"""Checks across fields that need nothing but the spec: what excludes, needs or names what. One run reports them all."""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Diagnostic, FieldPath, Label, Severity, error
from disaggc.spec.cluster import Accelerator, Cluster, NodeGroup
from disaggc.spec.model import Spec
from disaggc.spec.names_of_nodes import is_address, node_names
from disaggc.spec.service_consistency import service_findings

NODE_LIMIT = 16_384
_INLINE_FACTS = ("vendor", "memory", "memory_bandwidth", "bf16")


def consistency(spec: Spec) -> list[Diagnostic]:
    """Every finding about the cluster and the services, not yet placed."""
    total = sum(len(group.hosts or ()) or group.count or 0 for group in spec.cluster.nodes.values())
    if total > NODE_LIMIT:
        message = f"the cluster has {total:,} nodes, at most {NODE_LIMIT:,} are planned"
        return [Diagnostic("DGC114", Severity.ERROR, message, ("cluster", "nodes"), at_key=True)]
    found = [*_cluster(spec.cluster)]
    for name, service in spec.services.items():
        found.extend(service_findings(("services", name), service, spec.cluster))
    found.extend(_guarantees(spec))
    return found


def conflict(message: str, path: FieldPath, labels: tuple[Label, ...] = ()) -> Diagnostic:
    """Two fields that disagree, at the later one's key."""
    return Diagnostic("DGC115", Severity.ERROR, message, path, labels=labels, at_key=True)


def _cluster(cluster: Cluster) -> Iterator[Diagnostic]:
    names: dict[str, FieldPath] = {}
    addresses: dict[str, FieldPath] = {}
    for group_name, group in cluster.nodes.items():
        path = ("cluster", "nodes", group_name)
        yield from _node_group(path, group)
        for name in node_names(group_name, group):
            here = (*path, "hosts", name) if group.hosts else path
            if name in names:
                label = Label(names[name], "also here")
                yield conflict(f"host `{name}` stands in two node groups", here, (label,))
            names.setdefault(name, here)
        for name, address in (group.hosts or {}).items():
            here = (*path, "hosts", name)
            if not is_address(address):
                yield error(
                    "DGC114", f"`{name}` has `{address}`, which is no IP address and no host name", here
                )
            folded = address.lower().rstrip(".")
            if folded in addresses:
                label = Label(addresses[folded], "also here")
                yield Diagnostic(
                    "DGC115", Severity.ERROR, f"two hosts have the address `{address}`", here, labels=(label,)
                )
            addresses.setdefault(folded, here)
    yield from _currencies(cluster)


def _node_group(path: FieldPath, group: NodeGroup) -> Iterator[Diagnostic]:
    if group.hosts is not None and group.count is not None:
        label = Label((*path, "hosts"), "and this")
        yield conflict("`hosts` and `count` exclude each other", (*path, "count"), (label,))
    if group.hosts is None and group.count is None:
        yield Diagnostic(
            "DGC111", Severity.ERROR, f"node group `{path[-1]}` has neither `hosts` nor `count`", path,
            help="add `hosts: {gpu-01: 10.0.0.1}`, or `count: 4` where names do not matter", at_key=True,
        )  # fmt: skip
    if group.hosts is not None and not group.hosts:
        yield Diagnostic("DGC114", Severity.ERROR, "`hosts` is empty", (*path, "hosts"), at_key=True)
    yield from _accelerator((*path, "accelerator"), group.accelerator)
    nics = group.nics
    if nics is not None and nics.devices is not None:
        if len(nics.devices) != nics.per_node:
            message = f"`devices` names {len(nics.devices)} NICs, `per_node` says {nics.per_node}"
            yield conflict(
                message, (*path, "nics", "devices"), (Label((*path, "nics", "per_node"), "this many"),)
            )
        yield from _repeated((*path, "nics", "devices"), nics.devices)
    yield from _racks(path, group)
    yield from _numa(path, group)


def _repeated(path: FieldPath, items: tuple[str, ...]) -> Iterator[Diagnostic]:
    for index, item in enumerate(items):
        if item in items[:index]:
            first = Label((*path, items.index(item)), "first here")
            yield Diagnostic(
                "DGC115",
                Severity.ERROR,
                f"`{item}` stands twice in `{path[-1]}`",
                (*path, index),
                labels=(first,),
            )


def _accelerator(path: FieldPath, accelerator: Accelerator) -> Iterator[Diagnostic]:
    if accelerator.type is not None:
        return
    missing = [name for name in _INLINE_FACTS if getattr(accelerator, name) is None]
    if missing:
        listed = ", ".join(f"`{name}`" for name in missing)
        yield Diagnostic(
            "DGC111", Severity.ERROR, f"`accelerator` has no `type` and no {listed}", path,
            help="give a catalog id (`disaggc catalog accelerators`) or all four facts", at_key=True,
        )  # fmt: skip


def _racks(path: FieldPath, group: NodeGroup) -> Iterator[Diagnostic]:
    known = set(node_names(str(path[-1]), group))
    placed: dict[str, FieldPath] = {}
    for rack, hosts in (group.racks or {}).items():
        for index, host in enumerate(hosts):
            here = (*path, "racks", rack, index)
            if host not in known:
                yield error("DGC114", f"rack `{rack}` names `{host}`, which is no host of this group", here)
            if host in placed:
                label = Label(placed[host], "first here")
                yield Diagnostic(
                    "DGC115",
                    Severity.ERROR,
                    f"host `{host}` stands in two racks or twice in one",
                    here,
                    labels=(label,),
                )
            placed.setdefault(host, here)


def _numa(path: FieldPath, group: NodeGroup) -> Iterator[Diagnostic]:
    seen: dict[int, FieldPath] = {}
    for domain, near in enumerate(group.numa or ()):
        for index, device in enumerate(near.devices):
            here = (*path, "numa", domain, "devices", index)
            if device >= group.accelerator.per_node:
                count = group.accelerator.per_node
                message = f"`devices` names accelerator {device}, a node has {count}, counted from 0"
                yield error("DGC114", message, here)
            if device in seen:
                label = Label(seen[device], "first here")
                message = f"accelerator {device} stands in two NUMA domains or twice in one"
                yield Diagnostic("DGC115", Severity.ERROR, message, here, labels=(label,))
            seen.setdefault(device, here)


def _currencies(cluster: Cluster) -> Iterator[Diagnostic]:
    first: tuple[str, FieldPath] | None = None
    for name, group in cluster.nodes.items():
        if group.price is None:
            continue
        here = ("cluster", "nodes", name, "price")
        if first is not None and group.price.currency != first[0]:
            label = Label(first[1], f"{first[0]} here")
            message = f"`price` is in {group.price.currency}, other prices in {first[0]}"
            yield Diagnostic(
                "DGC115", Severity.ERROR, message, here, labels=(label,), help="use one currency"
            )
        first = first or (group.price.currency, here)


def _guarantees(spec: Spec) -> Iterator[Diagnostic]:
    total = sum(len(node_names(name, group)) for name, group in spec.cluster.nodes.items())
    promised = 0
    for name, service in spec.services.items():
        nodes = service.guarantees.nodes
        if not nodes:
            continue
        promised += nodes
        if promised > total:
            message = f"guarantees promise {promised} nodes, the cluster has {total}"
            yield error("DGC115", message, ("services", name, "guarantees", "nodes"))
