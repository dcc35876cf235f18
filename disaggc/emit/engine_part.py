"""The processes of a plan's engines: one part per replica and node, with its words and variables before any quoting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from disaggc.ir.plan import (
    Argument,
    DeploymentPlan,
    FromSecret,
    KvLink,
    LeaderAddress,
    Literally,
    Node,
    NodeRank,
    OwnAddress,
    Pool,
    Replica,
    ServicePlan,
    Slot,
    Value,
)

VISIBLE_DEVICES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES", "cpu": None}
"""The variable that narrows what a process sees of a node's accelerators."""
RDMA_FABRICS = frozenset({"infiniband", "roce", "efa"})
"""Fabrics that programs use through /dev/infiniband."""


@dataclass(frozen=True, slots=True)
class EnginePart:
    """One engine process on one node; a replica on several nodes has several."""

    service: ServicePlan
    pool: Pool
    replica: Replica
    slot: Slot
    node: Node
    leader: Node

    @property
    def ranked(self) -> bool:
        """Whether the replica spans nodes."""
        return len(self.replica.slots) > 1

    @property
    def serves(self) -> bool:
        """Whether this part answers HTTP."""
        return self.slot.rank == 0

    @property
    def pool_name(self) -> str:
        """`prefill`, or `prefill-h100` where a role has several pools."""
        return self.pool.address.rpartition("/")[2]

    def arguments(self) -> tuple[Argument, ...]:
        """The flags this part gets."""
        return rank_arguments(self.replica, first=self.slot.rank == 0)

    def words(self, text: Callable[[Value], str]) -> tuple[str, ...]:
        """`serve MODEL --flag value ...`, with values as `text` has them."""
        return serve_words(self.service, self.arguments(), text)

    def devices(self) -> tuple[str, str] | None:
        """Name and value of the variable that shows the process its own accelerators; None without accelerators."""
        name = VISIBLE_DEVICES[self.pool.vendor]
        return None if name is None else (name, ",".join(map(str, self.slot.devices)))


def rank_arguments(replica: Replica, *, first: bool) -> tuple[Argument, ...]:
    """The replica's flags for its first node, or for the later ones."""
    return tuple(a for a in replica.arguments if not (a.other_nodes_only if first else a.first_node_only))


def serve_words(
    service: ServicePlan, arguments: tuple[Argument, ...], text: Callable[[Value], str]
) -> tuple[str, ...]:
    """`serve MODEL --flag value ...`; a value that looks like a flag is joined with `=`, so that it stays a value."""
    out = ["serve", service.model.path]
    for argument in arguments:
        values = [
            text(v) for v in (*([argument.value] if argument.value is not None else []), *argument.more)
        ]
        if len(values) == 1 and values[0].startswith("-"):
            out.append(f"{argument.flag}={values[0]}")
        else:
            out += [argument.flag, *values]
    return tuple(out)


def engine_parts(plan: DeploymentPlan) -> Iterator[EnginePart]:
    """Every engine process, in the plan's order, ranks in order."""
    nodes = {node.name: node for node in plan.nodes}
    for service in plan.services:
        for pool in service.pools:
            for replica in pool.replicas:
                slots = sorted(replica.slots, key=lambda slot: slot.rank)
                for slot in slots:
                    yield EnginePart(service, pool, replica, slot, nodes[slot.node], nodes[slots[0].node])


def host_text(part: EnginePart) -> Callable[[Value], str]:
    """Values for targets that place on known hosts (systemd, compose)."""

    def text(value: Value) -> str:
        match value:
            case Literally():
                return value.value
            case OwnAddress():
                return part.node.address or ""
            case LeaderAddress():
                return part.leader.address or ""
            case NodeRank():
                return str(part.slot.rank * value.times + value.plus)
            case FromSecret():
                raise ValueError("a secret has no text")

    return text


def uses_rdma(plan: DeploymentPlan, part: EnginePart) -> bool:
    """Whether the process opens RDMA devices: for KV that leaves the node, or for a replica over several nodes."""
    if plan.fabric not in RDMA_FABRICS:
        return False
    ours = [link for link in part.service.links if part.pool.address in (link.prefill, link.decode)]
    return part.ranked or any(link.transport == "rdma" for link in ours)


def reaches_out(part: EnginePart) -> bool:
    """Whether the engine must reach beyond the cluster to get its weights."""
    if part.service.model.path.startswith("/"):
        return False
    offline = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}
    return not any(v.name in offline and getattr(v.value, "value", "") == "1" for v in part.replica.env)


def downloads(part: EnginePart) -> bool:
    """Whether the engine looks for its weights in a Hugging Face cache, and nobody said in which."""
    named = any(v.name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE") for v in part.replica.env)
    return not part.service.model.path.startswith("/") and not named


def linked_on_node(service: ServicePlan, node: str) -> bool:
    """Whether prefill and decode that pair both have a part on the node, so that KV moves inside it."""
    pools = {pool.address: pool for pool in service.pools}

    def present(address: str) -> int:
        return sum(1 for r in pools[address].replicas for slot in r.slots if slot.node == node)

    def linked(link: KvLink) -> bool:
        if link.prefill == link.decode:
            return present(link.prefill) > 1
        return present(link.prefill) > 0 and present(link.decode) > 0

    return any(linked(link) for link in service.links)
