"""The part of the spec that says what there is to serve on; knows no catalog."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from disaggc.spec.names import Address, CatalogId, Device, HostName, Interface, Listed, Name, Part
from disaggc.spec.quantities import Flops, Money, Size, Speed


class Fabric(Part):
    """The network between nodes over which KV moves."""

    type: Literal["infiniband", "roce", "efa", "tcp"]
    """Kind of network. `tcp` has no RDMA and needs `allow_tcp: true`."""
    speed_per_nic: Speed
    """Line rate of one NIC, one direction."""
    allow_tcp: bool = False
    """Accept KV transfer over plain TCP (slow; refused otherwise)."""
    gid_index: int | None = Field(default=None, ge=0, le=255)
    """RoCE GID index for UCX and NCCL."""
    interface: Interface | None = None
    """Network interface for control traffic (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)."""


class Accelerator(Part):
    """The accelerators of one node: a catalog id, facts inline, or an id with single facts corrected."""

    type: CatalogId | None = None
    """Catalog id (`disaggc catalog accelerators`). Without it give vendor, memory, memory_bandwidth and bf16."""
    per_node: Annotated[int, Field(ge=1, le=72)]
    """Accelerators in one node."""
    vendor: Literal["nvidia", "amd"] | None = None
    """Decides devices, images and transports."""
    memory: Size | None = None
    """Physical memory of one accelerator."""
    memory_bandwidth: Speed | None = None
    """Memory bandwidth of one accelerator."""
    bf16: Flops | None = None
    """Dense bf16 peak."""
    fp8: Flops | None = None
    """Dense fp8 peak, where supported."""
    fp4: Flops | None = None
    """Dense fp4 peak, where supported."""
    link: Speed | None = None
    """Speed of the link between accelerators of one node, per accelerator, one direction."""


class Nics(Part):
    """RDMA network cards of one node."""

    per_node: Annotated[int, Field(ge=1, le=64)]
    """How many."""
    devices: Annotated[Listed[Device], Field(max_length=64)] | None = None
    """Device names for UCX_NET_DEVICES, one per NIC; unset lets UCX choose."""


class NumaDomain(Part):
    """One NUMA domain of a node: which accelerators and processors are near each other."""

    devices: Annotated[Listed[Annotated[int, Field(ge=0, le=71)]], Field(min_length=1, max_length=72)]
    """Accelerator indices attached to it."""
    cpus: Annotated[
        str, StringConstraints(pattern=r"^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*$", max_length=512)
    ]
    """Its processors, as in `lscpu`: `0-47,96-143`."""


class NodeGroup(Part):
    """Identical nodes."""

    hosts: Annotated[dict[HostName, Address], Field(max_length=4096)] | None = None
    """Host name -> address. Either this or `count`."""
    count: Annotated[int, Field(ge=1, le=4096)] | None = None
    """How many nodes, where their names do not matter (Kubernetes)."""
    accelerator: Accelerator
    """What one node holds."""
    nics: Nics | None = None
    """RDMA cards; absent means one for each accelerator."""
    price: Money | None = None
    """Price of one node, e.g. `24 USD/h`."""
    racks: dict[Name, Listed[HostName]] | None = None
    """Rack name -> hosts in it; KV prefers to stay inside a rack."""
    cpu_memory: Size | None = None
    """Host memory of one node; bounds /dev/shm and memory limits."""
    numa: Annotated[Listed[NumaDomain], Field(min_length=1, max_length=16)] | None = None
    """NUMA domains in order (`lscpu`, `nvidia-smi topo -m`); engines that fit in one are kept on its processors."""


class Cluster(Part):
    """What there is to serve on."""

    fabric: Fabric
    """The network between nodes."""
    nodes: Annotated[dict[Name, NodeGroup], Field(min_length=1, max_length=64)]
    """Groups of identical nodes by name."""
