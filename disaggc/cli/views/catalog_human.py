"""The catalog for people: one table per kind of fact, sources below or beside."""

from __future__ import annotations

from collections.abc import Sequence

from disaggc.catalog.engines import ConnectorFacts, EngineSnapshot
from disaggc.catalog.facts import AcceleratorFacts, FabricFacts, LayerKind, ModelFacts
from disaggc.catalog.hardware import NamedSpeed
from disaggc.cli.views.models_json import kv_bytes_per_token
from disaggc.cli.views.text import table
from disaggc.units import format_bytes, format_speed

_Row = tuple[str, ...]


def accelerators(facts: tuple[AcceleratorFacts, ...]) -> str:
    """One row each; peaks in dense TFLOP/s."""
    rows: list[_Row] = [
        ("id", "vendor", "memory", "bandwidth", "bf16 TFLOP/s", "fp8", "fp4", "link", "source")
    ]
    for fact in facts:
        peaks = dict(fact.peak_flops)
        shown = tuple(f"{peaks[p] / 1e12:,.0f}" if p in peaks else "-" for p in ("bf16", "fp8", "fp4"))
        link = f"{fact.link} x{fact.link_domain}, {format_speed(fact.link_bytes_per_s)}"
        memory, bandwidth = format_bytes(fact.memory_bytes), format_speed(fact.memory_bandwidth)
        rows.append((fact.id, fact.vendor, memory, bandwidth, *shown, link, fact.source))
    return _lines(rows)


def models(facts: tuple[ModelFacts, ...]) -> str:
    """One row each."""
    rows: list[_Row] = [
        ("id", "parameters", "active", "weights", "KV per token", "attention", "experts", "quantization")
    ]
    rows += [
        (
            fact.id,
            f"{fact.parameters / 1e9:,.1f} B",
            f"{fact.active_parameters / 1e9:,.1f} B",
            format_bytes(fact.weight_bytes),
            format_bytes(kv_bytes_per_token(fact)),
            fact.attention.value,
            str(fact.experts) if fact.experts else "-",
            fact.quantization,
        )
        for fact in facts
    ]
    return _lines(rows)


def model(fact: ModelFacts) -> str:
    """All of one model."""
    kinds = ", ".join(f"{n} {kind.value}" for kind in LayerKind if (n := fact.layers.count(kind)))
    experts = f"{fact.experts}, {fact.experts_per_token} per token" if fact.experts else "none (dense)"
    window = f", window {fact.sliding_window:,} tokens" if fact.sliding_window else ""
    rows: list[_Row] = [
        ("model", fact.id),
        ("architecture", fact.architecture),
        ("parameters", f"{fact.parameters:,}"),
        ("active per token", f"{fact.active_parameters:,}"),
        ("weights", f"{format_bytes(fact.weight_bytes)} ({fact.quantization})"),
        ("KV per token", f"{kv_bytes_per_token(fact):,.0f} B"),
        ("attention", fact.attention.value),
        ("layers", f"{len(fact.layers)} ({kinds}){window}"),
        ("experts", experts),
        ("longest context", f"{fact.max_position:,} tokens"),
        ("source", fact.source),
        *(("note", note) for note in fact.notes),
    ]
    return _lines(rows)


def engines(snapshots: tuple[EngineSnapshot, ...]) -> str:
    """One row each."""
    rows: list[_Row] = [("vLLM", "flags", "environment names", "connectors", "source")]
    rows += [
        (s.text, str(len(s.flags)), str(len(s.env_names)), str(len(s.connectors)), s.source)
        for s in snapshots
    ]
    return _lines(rows)


def connectors(facts: tuple[ConnectorFacts, ...], source: str) -> str:
    """One row each."""
    rows: list[_Row] = [("connector", "family", "hybrid allocator", "option keys")]
    for fact in facts:
        hybrid = "yes" if fact.supports_hma else "no"
        rows.append((fact.name, fact.family, hybrid, ", ".join(sorted(fact.option_keys)) or "-"))
    return _lines(rows) + f"\nsource: {source}"


def fabrics(rows: tuple[tuple[FabricFacts, tuple[NamedSpeed, ...]], ...]) -> str:
    """One row each."""
    out: list[_Row] = [("fabric", "RDMA", "line rates of one NIC", "latency", "KV reaches", "source")]
    for fact, speeds in rows:
        rates = ", ".join(f"{speed.name} {format_speed(speed.bytes_per_s)}" for speed in speeds)
        low, _, high = fact.efficiency
        reach = f"{low:.0%} to {high:.0%}"
        latency = f"{fact.latency_s * 1e6:.0f} us"
        out.append((fact.type, "yes" if fact.rdma else "no", rates, latency, reach, fact.source))
    return _lines(out)


def _lines(rows: Sequence[_Row]) -> str:
    return "\n".join(table(rows, indent=""))
