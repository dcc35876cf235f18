"""`disaggc.catalog-*/v1`: what `disaggc catalog ... --format json` prints; units stand in the names."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from disaggc.catalog.engines import ConnectorFacts, EngineSnapshot
from disaggc.catalog.facts import AcceleratorFacts, FabricFacts
from disaggc.catalog.hardware import NamedSpeed
from disaggc.cli.views.document import Document, Item


class AcceleratorItem(Item):
    """One accelerator as the engine sees it."""

    id: str
    vendor: Literal["nvidia", "amd", "cpu"]
    architecture: str
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    peak_flops: dict[str, float]
    """Dense FLOP/s by precision."""
    link: str
    link_domain: int
    """Accelerators joined by one fast link domain; 1 = none."""
    link_bytes_per_s: float
    """Per accelerator, one direction."""
    source: str


class AcceleratorsDocument(Document):
    """Output of `disaggc catalog accelerators --format json`."""

    schema_: Annotated[Literal["disaggc.catalog-accelerators/v1"], Field(alias="schema")] = (
        "disaggc.catalog-accelerators/v1"
    )
    accelerators: tuple[AcceleratorItem, ...]


class EngineItem(Item):
    """One vLLM version whose flags are known."""

    version: str
    flags: int
    """Flags of `vllm serve`."""
    environment_names: int
    connectors: tuple[str, ...]
    source: str


class EnginesDocument(Document):
    """Output of `disaggc catalog engines --format json`."""

    schema_: Annotated[Literal["disaggc.catalog-engines/v1"], Field(alias="schema")] = (
        "disaggc.catalog-engines/v1"
    )
    engines: tuple[EngineItem, ...]


class ConnectorItem(Item):
    """One KV connector."""

    name: str
    family: str
    """nixl, nixl-push, mooncake, moriio or other."""
    option_keys: tuple[str, ...]
    supports_hma: bool
    """Whether it works with the hybrid memory allocator."""
    source: str


class ConnectorsDocument(Document):
    """Output of `disaggc catalog connectors --format json`."""

    schema_: Annotated[Literal["disaggc.catalog-connectors/v1"], Field(alias="schema")] = (
        "disaggc.catalog-connectors/v1"
    )
    connectors: tuple[ConnectorItem, ...]


class FabricItem(Item):
    """One kind of network."""

    type: str
    rdma: bool
    line_rates_bytes_per_s: dict[str, float]
    """By the names people use; one NIC, one direction."""
    latency_s: float
    efficiency: tuple[float, float, float]
    """Low, mid and high share of the line rate that KV transfer reaches."""
    source: str


class FabricsDocument(Document):
    """Output of `disaggc catalog fabrics --format json`."""

    schema_: Annotated[Literal["disaggc.catalog-fabrics/v1"], Field(alias="schema")] = (
        "disaggc.catalog-fabrics/v1"
    )
    fabrics: tuple[FabricItem, ...]


def accelerators(facts: tuple[AcceleratorFacts, ...]) -> AcceleratorsDocument:
    """Every accelerator."""
    return AcceleratorsDocument(
        accelerators=tuple(
            AcceleratorItem(
                id=fact.id,
                vendor=fact.vendor,
                architecture=fact.architecture,
                memory_bytes=fact.memory_bytes,
                memory_bandwidth_bytes_per_s=fact.memory_bandwidth,
                peak_flops=dict(fact.peak_flops),
                link=fact.link,
                link_domain=fact.link_domain,
                link_bytes_per_s=fact.link_bytes_per_s,
                source=fact.source,
            )
            for fact in facts
        )
    )


def engines(snapshots: tuple[EngineSnapshot, ...]) -> EnginesDocument:
    """Every snapshot."""
    return EnginesDocument(
        engines=tuple(
            EngineItem(
                version=s.text,
                flags=len(s.flags),
                environment_names=len(s.env_names),
                connectors=tuple(sorted(s.connectors)),
                source=s.source,
            )
            for s in snapshots
        )
    )


def connectors(facts: tuple[ConnectorFacts, ...], source: str) -> ConnectorsDocument:
    """Every connector."""
    return ConnectorsDocument(
        connectors=tuple(
            ConnectorItem(
                name=fact.name,
                family=fact.family,
                option_keys=tuple(sorted(fact.option_keys)),
                supports_hma=fact.supports_hma,
                source=source,
            )
            for fact in facts
        )
    )


def fabrics(rows: tuple[tuple[FabricFacts, tuple[NamedSpeed, ...]], ...]) -> FabricsDocument:
    """Every fabric."""
    return FabricsDocument(
        fabrics=tuple(
            FabricItem(
                type=fact.type,
                rdma=fact.rdma,
                line_rates_bytes_per_s={speed.name: speed.bytes_per_s for speed in speeds},
                latency_s=fact.latency_s,
                efficiency=fact.efficiency,
                source=fact.source,
            )
            for fact, speeds in rows
        )
    )
