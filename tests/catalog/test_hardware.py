"""Accelerators and fabrics: complete, sourced, and plausible against one another."""

from __future__ import annotations

import pytest

from disaggc.catalog.load import load_catalog

CATALOG = load_catalog()
WANTED = (
    "a100-40g", "a100-80g", "h100-sxm", "h100-pcie", "h100-nvl", "h200", "h20", "h800", "b200", "b300", "gb200",
    "gb300", "l40s", "l4", "a10", "mi250x", "mi300x", "mi308x", "mi325x", "mi350x", "mi355x", "rtx-pro-6000", "cpu",
)  # fmt: skip
FP8_FROM = {"hopper", "ada", "blackwell", "cdna3", "cdna4"}


def test_all_wanted_accelerators_are_there():
    assert set(WANTED) == set(CATALOG.accelerator_ids)


@pytest.mark.parametrize("name", WANTED)
def test_every_fact_is_given_and_sourced(name):
    facts = CATALOG.accelerator(name)
    assert facts is not None
    assert facts.id == name
    assert facts.memory_bytes > 2**33
    assert facts.memory_bandwidth > 1e11
    assert dict(facts.peak_flops)["bf16"] > 0
    assert facts.link_domain >= 1
    assert facts.link_bytes_per_s > 0
    assert len(facts.source) > 20
    assert facts.architecture
    assert facts.vendor == ("cpu" if name == "cpu" else "amd" if name.startswith("mi") else "nvidia")


@pytest.mark.parametrize("name", [n for n in WANTED if n != "cpu"])
def test_figures_agree_with_one_another(name):
    facts = CATALOG.accelerator(name)
    peaks = dict(facts.peak_flops)
    seconds_to_read_all = facts.memory_bytes / facts.memory_bandwidth
    assert 0.015 < seconds_to_read_all < 0.09
    assert facts.link_bytes_per_s < facts.memory_bandwidth
    assert ("fp8" in peaks) == (facts.architecture in FP8_FROM)
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(2 * peaks["bf16"], rel=0.03)
    if "fp4" in peaks:
        assert facts.architecture in {"blackwell", "cdna4"}
        assert 2 <= peaks["fp4"] / peaks["fp8"] <= 3
    # Dense, not sparse: a flop to byte ratio twice as high would give away a figure with sparsity.
    assert 30 < peaks["bf16"] / facts.memory_bandwidth < 500


@pytest.mark.parametrize(
    ("name", "memory_gib", "bandwidth", "bf16", "fp8"),
    [
        ("mi300x", 192, 5.3e12, 1307.4e12, 2614.9e12),
        ("h100-sxm", 79.6, 3.35e12, 989.4e12, 1978.9e12),
        ("h200", 140.4, 4.8e12, 989.4e12, 1978.9e12),
        ("b200", 179.1, 8.0e12, 2250e12, 4500e12),
        ("mi355x", 288, 8.0e12, 2500e12, 5000e12),
        ("h20", 95.6, 4.0e12, 148e12, 296e12),
        ("a100-80g", 80, 2.039e12, 312e12, 312e12),
    ],
)
def test_known_figures(name, memory_gib, bandwidth, bf16, fp8):
    facts = CATALOG.accelerator(name)
    assert facts.memory_bytes / 2**30 == pytest.approx(memory_gib, abs=0.1)
    assert facts.memory_bandwidth == pytest.approx(bandwidth)
    assert facts.flops("bf16") == pytest.approx(bf16)
    assert facts.flops("fp8") == pytest.approx(fp8)


def test_a_missing_precision_falls_back_to_a_wider_one():
    assert CATALOG.accelerator("a10").flops("fp8") == pytest.approx(125e12)
    assert CATALOG.accelerator("a10").flops("int8") == pytest.approx(250e12)
    assert CATALOG.accelerator("cpu").flops("int8") == CATALOG.accelerator("cpu").flops("bf16")
    assert CATALOG.accelerator("mi250x").flops("fp4") == pytest.approx(191.5e12)


def test_aliases_and_unknown_names():
    assert CATALOG.accelerator("h100") == CATALOG.accelerator("h100-sxm")
    assert CATALOG.accelerator("a100").id == "a100-80g"
    for name in ("", "aliases", "h101", "H100", "[h100]", "\n"):
        assert CATALOG.accelerator(name) is None


def test_link_domains():
    assert CATALOG.accelerator("gb200").link_domain == 72
    assert CATALOG.accelerator("h100").link_domain == 8
    assert CATALOG.accelerator("l40s").link_domain == 1
    assert CATALOG.accelerator("h800").link_bytes_per_s < CATALOG.accelerator("h100").link_bytes_per_s


def test_fabrics():
    names = {fabric.type: fabric for fabric in CATALOG.fabrics}
    assert set(names) == {"infiniband", "roce", "efa", "tcp"}
    for fabric in names.values():
        low, mid, high = fabric.efficiency
        assert 0 < low < mid < high <= 1
        assert 0 < fabric.latency_s < 1e-3
        assert len(fabric.source) > 20
        speeds = CATALOG.fabric_speeds(fabric.type)
        assert len(speeds) >= 3
        assert list(speeds) == sorted(speeds, key=lambda s: s.bytes_per_s)
    assert not names["tcp"].rdma
    assert names["infiniband"].rdma
    assert {s.name: s.bytes_per_s for s in CATALOG.fabric_speeds("infiniband")} == {
        "HDR": 25e9, "NDR": 50e9, "XDR": 100e9,
    }  # fmt: skip
    assert CATALOG.fabric("token-ring") is None
    assert CATALOG.fabric_speeds("token-ring") == ()
