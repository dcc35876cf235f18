"""Sections of accelerators.toml and fabrics.toml -> typed facts in base units. Knows no model and no engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from disaggc.catalog.facts import AcceleratorFacts, FabricFacts, Precision

_MIB = 2.0**20


@dataclass(frozen=True, slots=True)
class NamedSpeed:
    """A line rate people know by a name (HDR, NDR), one NIC in one direction."""

    name: str
    bytes_per_s: float


def accelerator_facts(name: str, section: Mapping[str, Any]) -> AcceleratorFacts:
    """MiB, TB/s, TFLOPS and GB/s of a section -> bytes, bytes/s and FLOP/s."""
    peaks = tuple((p, section[f"{p}_tflops"] * 1e12) for p in get_args(Precision) if f"{p}_tflops" in section)
    return AcceleratorFacts(
        id=name,
        vendor=section["vendor"],
        memory_bytes=section["memory_mib"] * _MIB,
        memory_bandwidth=section["bandwidth_tb_s"] * 1e12,
        peak_flops=peaks,
        link=section["link"],
        link_domain=section["link_domain"],
        link_bytes_per_s=section["link_gb_s"] * 1e9,
        source=section["source"],
        architecture=section["architecture"],
    )


def fabric_facts(name: str, section: Mapping[str, Any]) -> FabricFacts:
    """Gbit/s and microseconds of a section -> bytes/s and seconds."""
    low, mid, high = section["efficiency"]
    return FabricFacts(
        type=name,
        rdma=section["rdma"],
        default_bytes_per_s=section["default_gbit_s"] * 1e9 / 8,
        latency_s=section["latency_us"] * 1e-6,
        efficiency=(low, mid, high),
        source=section["source"],
    )


def named_speeds(section: Mapping[str, Any]) -> tuple[NamedSpeed, ...]:
    """The line rates of one fabric by name, slowest first."""
    rates = sorted(section["speeds"].items(), key=lambda item: item[1])
    return tuple(NamedSpeed(name, gbit * 1e9 / 8) for name, gbit in rates)
