"""Fields that exclude, need or name each other."""

from __future__ import annotations

import pytest

from disaggc.spec.names_of_nodes import is_address
from tests.spec.loading import changed, loaded, said

HOSTS = "      hosts: {n1: 10.0.0.1, n2: 10.0.0.2}\n"
GROUP = "      accelerator: {type: mi300x, per_node: 8}\n"
SECOND = "    more:\n      hosts: {m1: 10.0.0.9}\n      accelerator: {type: mi300x, per_node: 8}\n"
RAG = "        rate: 2/s\n"
ENGINE = "      vllm: 0.33.0\n"

CASES = [
    ((HOSTS, HOSTS + "      count: 2\n"), ["DGC115 7:7"], "exclude each other"),
    ((HOSTS, ""), ["DGC111 5:5"], "neither `hosts` nor `count`"),
    ((HOSTS, "      hosts: {}\n"), ["DGC114 6:7"], "empty"),
    ((HOSTS, "      count: 2\n"), [], ""),
    ((HOSTS, "      hosts: {n1: 10.0.0.1, n2: 10.0.0.1}\n"), ["DGC115 6:33"], "two hosts have the address"),
    ((GROUP, GROUP + SECOND.replace("10.0.0.9", "10.0.0.2")), ["DGC115 9:19"], "two hosts have the address"),
    ((GROUP, GROUP + SECOND.replace("m1:", "n1:")), ["DGC115 9:15"], "two node groups"),
    ((GROUP, GROUP + SECOND), [], ""),
    (("{type: mi300x, per_node: 8}", "{per_node: 8, vendor: amd}"), ["DGC111 7:7"], "`memory_bandwidth`"),
    (("{type: mi300x, per_node: 8}", "{per_node: 8, vendor: amd, memory: 1GiB, memory_bandwidth: 1GB/s, bf16: 1TFLOPS}"), [], ""),
    ((GROUP, GROUP + "      nics: {per_node: 2, devices: [a]}\n"), ["DGC115 8:27"], "names 1 NICs, `per_node` says 2"),
    ((GROUP, GROUP + "      nics: {per_node: 2, devices: [a, a]}\n"), ["DGC115 8:40"], "twice"),
    ((GROUP, GROUP + "      racks: {r1: [n1], r2: [n3]}\n"), ["DGC114 8:30"], "no host of this group"),
    ((GROUP, GROUP + "      racks: {r1: [n1], r2: [n1]}\n"), ["DGC115 8:30"], "two racks"),
    ((GROUP, GROUP + "      racks: {r1: [n1], r2: [n2]}\n"), [], ""),
    ((GROUP, GROUP + "      numa: [{devices: [0, 9], cpus: 0-7}]\n"), ["DGC114 8:28"], "accelerator 9"),
    ((GROUP, GROUP + "      numa: [{devices: [0], cpus: 0-7}, {devices: [0], cpus: 8-15}]\n"), ["DGC115 8:52"], "two NUMA"),
    ((GROUP, GROUP + "      price: 1 USD/h\n" + SECOND + "      price: 1 EUR/h\n"), ["DGC115 12:14"], "in EUR"),
    ((RAG, ""), ["DGC111 12:7"], "neither `rate` nor `concurrency`"),
    ((RAG, "        concurrency: 4\n"), [], ""),
    ((RAG, "        concurrency: 4\n        arrivals: {cv: 2}\n"), ["DGC116 16:9"], "not used without `rate`"),
    ((RAG, RAG + "        arrivals: {cv: 2, trace: x}\n"), ["DGC115 16:27"], "exclude each other"),
    ((RAG, RAG + "        arrivals: {}\n"), ["DGC111 16:9"], "neither `cv` nor `trace`"),
    ((RAG, RAG + "        objectives: {ttft_p50: 9s, ttft_p99: 5s}\n"), ["DGC115 16:32"], "never bind"),
    ((RAG, RAG + "        objectives: {itl_p90: 9ms, itl_p99: 9ms}\n"), [], ""),
    (("input_tokens: 1024", "input_tokens: {mean: 9, p50: 8, p99: 3}"), ["DGC115 13:38"], "above `p99`"),
    (("input_tokens: 1024", "input_tokens: {histogram: {5: 0, 9: 0}}"), ["DGC114 13:35"], "zero"),
    ((ENGINE, ENGINE + "    constraints: {prefill: {nodes: [bigg]}}\n"), ["DGC114 18:37"], "no node group `bigg`"),
    ((ENGINE, ENGINE + "    constraints: {prefill: {tp: []}}\n"), ["DGC114 18:29"], "allows nothing"),
    ((ENGINE, ENGINE + "    constraints: {spare_replicas: 2, decode: {replicas: 2}}\n"), ["DGC115 18:57"], "would leave none"),
    ((ENGINE, ENGINE + "    constraints: {spare_replicas: 2, decode: {replicas: 3}}\n"), [], ""),
    ((ENGINE, ENGINE + "    proxy: {nodes: [n9]}\n"), ["DGC114 18:21"], "no host `n9`"),
    ((ENGINE, ENGINE + "    proxy: {nodes: [n1, n1]}\n"), ["DGC115 18:25"], "twice"),
    ((ENGINE, ENGINE + "    proxy: {nodes: [n1], replicas: 2}\n"), ["DGC115 18:13"], "1 hosts for 2"),
    ((ENGINE, ENGINE + "    guarantees: {nodes: 3}\n"), ["DGC115 18:25"], "the cluster has 2"),
    ((ENGINE, ENGINE + "    guarantees: {nodes: 2}\n    constraints: {max_nodes: 1}\n"), ["DGC115 18:25"], "`constraints.max_nodes` is 1"),
    ((ENGINE, ENGINE + "    constraints: {mode: colocated, prefill: {tp: [8]}}\n"), ["DGC116 18:36"], "`mode: colocated`"),
    ((ENGINE, ENGINE + "      connector: {type: nixl}\n    constraints: {mode: colocated}\n"), ["DGC116 18:7"], "connector"),
    ((ENGINE, ENGINE + "      decode: {env: {A: x}}\n    constraints: {mode: colocated}\n"), ["DGC116 18:7"], "engine.decode"),
    ((ENGINE, ENGINE + "    constraints: {mode: colocated, decode: {tp: [8]}}\n"), [], ""),
    ((ENGINE, ENGINE + "    constraints: {mode: colocated, colocated: {tp: [8]}, decode: {tp: [8]}}\n"), ["DGC116 18:58"], "decode"),
    ((ENGINE, ENGINE + "    constraints: {mode: auto, prefill: {tp: [8]}}\n"), [], ""),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "places", "words"), CASES)
def test_fields_that_disagree(edit: tuple[str, str], places: list[str], words: str) -> None:
    outcome = loaded(changed(edit))
    assert said(outcome) == places
    assert (outcome.value is None) == bool(places)
    if places:
        assert words in outcome.diagnostics[0].message


def test_default_names_of_counted_nodes_can_be_used() -> None:
    text = changed((HOSTS, "      count: 2\n"), (ENGINE, ENGINE + "    proxy: {nodes: [big-0, big-1]}\n"))
    assert loaded(text).diagnostics == ()
    assert said(loaded(text.replace("big-1]", "big-2]"))) == ["DGC114 18:28"]


def test_labels_point_at_the_other_field() -> None:
    [finding] = loaded(changed((HOSTS, HOSTS + "      count: 2\n"))).diagnostics
    [label] = finding.labels
    assert label.span is not None
    assert (label.span.line, label.span.column) == (6, 14)


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1", "255.255.255.255", "::1", "fe80::1", "2001:db8::8:800:200c:417a", "gpu-01", "a.b.c", "a.b."],
)
def test_addresses(text: str) -> None:
    assert is_address(text)


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0",
        "10.0.0.256",
        "1.2.3.4.5",
        "10.0.0.1:22",
        ":",
        "::g",
        "a..b",
        "-a",
        "a-",
        "a_b",
        "",
        "5",
        "a.5",
    ],
)
def test_no_addresses(text: str) -> None:
    assert not is_address(text)
