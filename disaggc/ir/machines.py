"""The machines of a plan and how one engine is spread over them; knows no engine and no service."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from disaggc.ir.element import Element


class Shape(Element):
    """How one engine is spread: tp x pp x dp accelerators; ep = expert-parallel degree (1: no expert placed whole).

    dcp takes no accelerators of its own and is written only above 1, so that plans without it keep their bytes.
    """

    tp: int = 1
    """Tensor-parallel degree."""
    pp: int = 1
    """Pipeline-parallel degree."""
    dp: int = 1
    """Data-parallel degree."""
    ep: int = 1
    """Expert-parallel degree."""
    dcp: int = Field(default=1, exclude_if=lambda degree: degree == 1)
    """Decode-context-parallel degree: tensor-parallel ranks that share the KV of a sequence by tokens."""

    @property
    def accelerators(self) -> int:
        """Accelerators one replica takes."""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        """`tp8`, `tp4 dp2 ep8`."""
        further = (("pp", self.pp), ("dp", self.dp), ("ep", self.ep), ("dcp", self.dcp))
        return " ".join([f"tp{self.tp}", *(f"{name}{degree}" for name, degree in further if degree > 1)])


class NumaDomain(Element):
    """Accelerators and processors of a node that are near each other."""

    devices: tuple[int, ...]
    """Accelerator indices."""
    cpus: str
    """Processors, `0-47,96-143`."""


class Node(Element):
    """One machine of the cluster that the plan uses or may use."""

    name: str
    """Host name, or `<group>-<n>` where the spec gives only a count."""
    group: str
    """Node group of the spec."""
    address: str | None
    """Literal address, None where the spec gives only a count."""
    rack: str | None = None
    """Rack, where the spec names racks."""
    pinned: bool = False
    """The spec names this host, so the target must place on exactly it."""
    vendor: Literal["nvidia", "amd", "cpu"]
    """Accelerator vendor."""
    accelerator: str
    """Catalog id of its accelerators."""
    accelerators: int
    """How many it has."""
    nics: int
    """RDMA cards."""
    nic_devices: tuple[str, ...] = ()
    """Their names, where the spec gives them."""
    numa: tuple[NumaDomain, ...] = ()
    """NUMA domains in order, where the spec gives them."""
