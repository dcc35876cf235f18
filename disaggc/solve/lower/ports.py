"""The one port planner: ports follow from (node, first device), so a replica keeps its ports whatever runs beside it.

Every device owns a block of 160 ports from 20000 on; with at most 72 devices on a node all blocks stay below the
ephemeral range (32768). A replica uses the blocks of its own devices only. On target local all nodes are one machine,
so the devices of all of them are numbered through.
"""

from __future__ import annotations

from disaggc.ir.plan import Ports, Role, Shape
from disaggc.resolve.model import ResolvedSpec
from disaggc.solve.solution import SlotAt
from disaggc.spec.model import LocalTarget

FIRST = 20000
PER_DEVICE = 160
SIDE_OFFSET = 4
SIDE_PER_DEVICE = 28
INTERNAL_OFFSET = 60
INTERNAL_PER_DEVICE = 100
PROXY_ADMIN = FIRST - 1000
"""First admin port; one for each service, below every engine block."""
PROXY_METRICS = FIRST - 500
"""First port for metrics alone, likewise."""


def first_device(resolved: ResolvedSpec, at: SlotAt) -> int:
    """Number of the slot's first device: within its node, or on target local among those of all nodes."""
    before = 0
    if resolved.target == "local":
        for node, devices in ((n, g.per_node) for g in resolved.groups for n in g.nodes):
            if node.name == at.node:
                break
            before += devices
    return before + at.devices[0]


def first_port(resolved: ResolvedSpec) -> int:
    """Where the engines' ports begin."""
    if resolved.target != "local":
        return FIRST
    return (resolved.spec.targets.local or LocalTarget()).base_port


def admin_port(resolved: ResolvedSpec, index: int) -> int:
    """Administration of the proxies of service number `index`."""
    return first_port(resolved) - (FIRST - PROXY_ADMIN) + index


def metrics_port(resolved: ResolvedSpec, index: int) -> int | None:
    """Metrics of those proxies for other machines; on target local there are none."""
    return None if resolved.target == "local" else PROXY_METRICS + index


def replica_ports(
    device: int, shape: Shape, role: Role, *, connector: str | None, multi_node: bool, start: int = FIRST
) -> Ports:
    """Ports of one replica, by the number of its first device; start: the port of device 0.

    connector: nixl, nixl-push, mooncake, moriio, or None when colocated.

    The side channel is as wide as the whole data-parallel group, because vLLM adds the global data-parallel index to
    the base port on whichever node the engine runs; MoRIIO adds TP as well.
    """
    base = start + device * PER_DEVICE
    width = shape.dp + (shape.tp if connector == "moriio" else 0)
    return Ports(
        http=base,
        side_channel=base + SIDE_OFFSET if connector is not None else None,
        side_channel_width=width if connector is not None else 0,
        bootstrap=base + 3 if connector == "mooncake" and role is Role.PREFILL else None,
        notify=base + SIDE_OFFSET + width if connector == "moriio" else None,
        dp_rpc=base + 1 if shape.dp > 1 else None,
        master=base + 2 if multi_node else None,
        internal=base + INTERNAL_OFFSET,
        internal_width=INTERNAL_PER_DEVICE,
    )
