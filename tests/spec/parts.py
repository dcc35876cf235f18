"""Parts of a valid spec, drawn so that they fit together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

Part = dict[str, Any]
DIGEST = "sha256:" + "0" * 64
ENGINE_IMAGE = f"example.org/vllm@{DIGEST}"
PROXY_IMAGE = f"example.org/disaggc@{DIGEST}"

_MODELS = {
    "meta-llama/Llama-3.1-8B": (2, 4, 8),
    "meta-llama/Llama-3.3-70B-Instruct": (4, 8),
    "Qwen/Qwen3-32B": (4, 8),
    "Qwen/Qwen3-235B-A22B-FP8": (4, 8),
    "deepseek-ai/DeepSeek-R1": (8,),
}
"""Model -> tensor-parallel degrees that divide its heads and hold its weights on 80 GB."""
_EXPERTS = ("Qwen/Qwen3-235B-A22B-FP8", "deepseek-ai/DeepSeek-R1")


@dataclass(frozen=True)
class Situation:
    """What the services of a spec must fit to."""

    target: str
    groups: dict[str, str]
    """Node group -> accelerator id."""
    hosts: tuple[str, ...]
    vendor: str
    priced: bool
    rdma: bool
    per_node: int
    """Accelerators on every node at least."""


def some(draw: st.DrawFn, part: Part, always: tuple[str, ...] = ()) -> Part:
    """A drawn subset of the fields: one draw, a bit for each."""
    kept = draw(st.integers(0, 2 ** len(part) - 1))
    return {
        name: value for bit, (name, value) in enumerate(part.items()) if kept >> bit & 1 or name in always
    }


def _names(*names: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=2)


@st.composite
def _accelerator(draw: st.DrawFn, vendor: str) -> Part:
    per_node = draw(st.sampled_from([8, 4])) if vendor == "nvidia" else 8
    ids = ["h100-sxm", "h200", "b200"] if vendor == "nvidia" else ["mi300x", "mi325x"]
    facts = {
        "vendor": vendor,
        "memory": "192GiB",
        "memory_bandwidth": "5.3TB/s",
        "bf16": "1307TFLOPS",
        "fp8": "2.6PFLOPS",
        "fp4": "5.2PFLOPS",
        "link": "448GB/s",
    }
    if draw(st.booleans()):
        return {
            "per_node": per_node,
            **some(draw, facts, ("vendor", "memory", "memory_bandwidth", "bf16", "link")),
        }
    corrected = some(draw, {"memory": "192GiB", "memory_bandwidth": "5.3TB/s", "link": "448GB/s"})
    return {"type": draw(st.sampled_from(ids)), "per_node": per_node, **corrected}


@st.composite
def _fabric(draw: st.DrawFn) -> Part:
    kind = draw(st.sampled_from(["infiniband", "roce", "tcp"]))
    fabric: Part = {"type": kind, "speed_per_nic": draw(st.sampled_from(["200Gbit", "400Gbit", "25GB/s"]))}
    if kind == "tcp":
        fabric["allow_tcp"] = True
    if kind == "roce" and draw(st.booleans()):
        fabric["gid_index"] = 3
    if draw(st.booleans()):
        fabric["interface"] = "eth0"
    return fabric


@st.composite
def cluster(draw: st.DrawFn, target: str) -> tuple[Part, Situation]:
    """A cluster of one vendor with one or two node groups, and what its services must fit to."""
    vendor = draw(st.sampled_from(["nvidia", "amd"]))
    fabric = draw(_fabric())
    priced = draw(st.booleans())
    nodes: Part = {}
    groups: dict[str, str] = {}
    hosts: list[str] = []
    for number, name in enumerate(
        draw(st.lists(st.sampled_from(["big", "small", "g-3"]), unique=True, min_size=1, max_size=2))
    ):
        accelerator = draw(_accelerator(vendor))
        count = draw(st.integers(2, 5))
        group: Part = {"accelerator": accelerator}
        if target == "kubernetes" and draw(st.booleans()):
            group["count"] = count
            own = [f"{name}-{index}" for index in range(count)]
        else:
            own = [f"{name}-n{index}.example.org" for index in range(count)]
            group["hosts"] = {host: f"10.0.{number}.{index + 1}" for index, host in enumerate(own)}
        nics = draw(st.sampled_from([1, 4, 8]))
        optional: Part = {
            "nics": {"per_node": nics, "devices": [f"mlx5_{index}" for index in range(nics)]},
            "racks": {"r1": own[:1], "r2": own[1:]},
            "cpu_memory": "2TiB",
            "numa": [{"devices": list(range(accelerator["per_node"])), "cpus": "0-47,96-143"}],
        }
        if draw(st.booleans()):
            del optional["nics"]["devices"]
        group |= some(draw, optional)
        if priced:
            group["price"] = draw(st.sampled_from(["24 USD/h", "98.5 USD/h"]))
        nodes[name] = group
        groups[name] = accelerator.get("type", name)
        hosts += own
    rdma = fabric["type"] != "tcp"
    least = min(group["accelerator"]["per_node"] for group in nodes.values())
    return {"fabric": fabric, "nodes": nodes}, Situation(
        target, groups, tuple(hosts), vendor, priced, rdma, least
    )


@st.composite
def length(draw: st.DrawFn, typical: int) -> object:
    """A token length in any of its forms."""
    form = draw(st.sampled_from(["number", "moments", "histogram", "trace"]))
    if form == "number":
        return draw(st.integers(typical // 2, typical * 2))
    if form == "moments":
        moments = {"p50": typical * 0.8, "p90": float(typical * 2), "p99": float(typical * 4)}
        return {"mean": float(typical), **some(draw, moments)}
    if form == "histogram":
        return {"histogram": {typical // 2: 3, typical: 5, typical * 2: 1.5}}
    return {"trace": draw(st.sampled_from(["trace.csv", "trace.jsonl"]))}


@st.composite
def bounds(draw: st.DrawFn) -> Part:
    """Objectives that any sensible layout keeps."""
    every = {
        "ttft_p50": "30s", "ttft_p90": "45s", "ttft_p99": "60s",
        "itl_p50": "800ms", "itl_p90": "900ms", "itl_p99": "2s",
        "e2e_p50": "1h", "e2e_p90": "1h30m", "e2e_p99": "2h",
    }  # fmt: skip
    return some(draw, every)


@st.composite
def workload_class(draw: st.DrawFn) -> Part:
    """One class of requests."""
    load = draw(st.sampled_from([("rate",), ("concurrency",), ("rate", "concurrency")]))
    part: Part = {"input_tokens": draw(length(1000)), "output_tokens": draw(length(200))}
    if "rate" in load:
        part["rate"] = draw(st.sampled_from(["2/s", "90/min", "1.5 rps"]))
        arrivals = draw(st.sampled_from([None, {"cv": 1.2}, {"cv": 0}, {"trace": "trace.csv"}]))
        if arrivals is not None:
            part["arrivals"] = arrivals
    if "concurrency" in load:
        part["concurrency"] = draw(st.integers(8, 256))
    optional = {
        "prefix_hit": draw(st.sampled_from(["30%", 0.5, "0%"])),
        "objectives": draw(bounds()),
        "priority": draw(st.integers(0, 100)),
    }
    return {**part, **some(draw, optional)}


def _env(draw: st.DrawFn) -> Part:
    secret = {"HF_TOKEN": {"secret": "hf-token"}}
    return some(draw, {"HF_HUB_OFFLINE": "1", "TZ": "Etc/UTC", **secret})


@st.composite
def _role_engine(draw: st.DrawFn) -> Part:
    settings = some(
        draw, {"stream-interval": draw(st.integers(1, 8)), "enable-log-requests": draw(st.booleans())}
    )
    return some(
        draw, {"settings": settings, "env": some(draw, {"TZ": "Etc/UTC", "HF_TOKEN": {"secret": "hf-token"}})}
    )


@st.composite
def _engine(draw: st.DrawFn, situation: Situation, *, colocated: bool) -> Part:
    settings = {
        "max-model-len": draw(st.sampled_from([32768, "32K"])),
        "gpu-memory-utilization": 0.9,
        "dtype": "bfloat16",
        "enable-prefix-caching": True,
        "override-generation-config": {"temperature": 0.6},
        "disable-access-log-for-endpoints": "/health",
    }
    engine: Part = {"vllm": "0.33.0"}
    optional: Part = {"settings": some(draw, settings), "env": _env(draw)}
    if not colocated:
        optional["prefill"] = draw(_role_engine())
        optional["decode"] = draw(_role_engine())
        optional["connector"] = draw(_connector(situation))
    engine |= some(draw, optional)
    image = draw(st.sampled_from([{"image": ENGINE_IMAGE}, {"images": {situation.vendor: ENGINE_IMAGE}}]))
    engine |= image
    engine["command"] = "/opt/vllm/bin/vllm"
    return engine


@st.composite
def _connector(draw: st.DrawFn, situation: Situation) -> Part:
    kinds = ["nixl", "nixl-push"] if situation.rdma else ["nixl"]
    optional = {
        "lease": draw(st.sampled_from(["auto", "120s"])),
        "load_failure": "fail",
        "options": draw(st.sampled_from([{"num_threads": 4}, {"backends": ["UCX"]}])),
    }
    return {"type": draw(st.sampled_from(kinds)), **some(draw, optional)}


@st.composite
def _choices(draw: st.DrawFn, situation: Situation, model: tuple[tuple[int, ...], bool], spare: int) -> Part:
    degrees, experts = model
    optional: Part = {
        "tp": sorted(draw(st.sets(st.sampled_from(degrees), min_size=1)) | {degrees[0]}),
        "pp": [1],
        "dp": [1],
        "dcp": [1],
        "expert_parallel": experts and draw(st.booleans()),
        "accelerators": sorted(set(situation.groups.values())),
        "nodes": sorted(situation.groups),
        "replicas": 1 + spare,
    }
    return some(draw, optional)


@st.composite
def _constraints(
    draw: st.DrawFn, situation: Situation, model: tuple[tuple[int, ...], bool], mode: str
) -> Part:
    spare = draw(st.integers(0, 1))
    optional: Part = {
        "decode": draw(_choices(situation, model, spare)),
        "spare_replicas": spare,
        "max_nodes": len(situation.hosts),
    }
    if mode != "colocated":
        optional["prefill"] = draw(_choices(situation, model, spare))
        optional["colocated"] = draw(_choices(situation, model, spare))
    return {"mode": mode, **some(draw, optional)}


TIMEOUTS = {
    "connect": "1500ms", "prefill": "1h", "handoff": "10s", "first_byte": "1h", "gap": "10min", "total": "3d",
    "queue": "20s",
}  # fmt: skip


@st.composite
def _proxy(draw: st.DrawFn, situation: Situation, port: int) -> Part:
    keys: list[Part] = [{"env": "DISAGGC_API_KEY"}]
    if situation.target == "kubernetes":
        keys.append({"kubernetes_secret": {"name": "proxy-key", "key": "token"}})
    else:
        keys.append({"file": "/etc/llm/key"})
    optional: Part = {
        "replicas": 1,
        "api_key": draw(st.sampled_from(keys)),
        "nodes": [draw(st.sampled_from(situation.hosts))],
        "policy": draw(st.sampled_from(["least-work", "power-of-two", "prefix-affinity", "round-robin"])),
        "on_prefill_failure": draw(st.sampled_from(["retry", "error"])),
        "timeouts": TIMEOUTS,
    }
    return {"port": port, "image": PROXY_IMAGE, "command": "/opt/disaggc/bin/disaggc", **some(draw, optional)}


@st.composite
def _model(draw: st.DrawFn, per_node: int) -> tuple[Part, tuple[tuple[int, ...], bool]]:
    served = some(draw, {"served_name": "assistant", "revision": "main"})
    if draw(st.booleans()):
        own = {"id": "example-org/dense-8b", "config": "config.json", "weights": "/models/dense-8b"}
        return {**own, **served}, ((1, 2, 4), False)
    fitting = {
        name: tuple(degree for degree in degrees if degree <= per_node) for name, degrees in _MODELS.items()
    }
    model_id = draw(st.sampled_from(sorted(name for name, degrees in fitting.items() if degrees)))
    return {"id": model_id, "weights": f"/models/{model_id}", **served}, (
        fitting[model_id],
        model_id in _EXPERTS,
    )


@st.composite
def service(draw: st.DrawFn, situation: Situation, port: int) -> Part:
    """One service that fits the cluster."""
    model, degrees = draw(_model(situation.per_node))
    mode = draw(st.sampled_from(["auto", "disaggregated", "colocated"]))
    names = draw(st.lists(st.sampled_from(["rag", "talk"]), unique=True, min_size=1, max_size=2))
    workload = {name: draw(workload_class()) for name in names}
    offered = any("rate" in part for part in workload.values())
    optional: Part = {
        "constraints": draw(_constraints(situation, degrees, mode)),
        "speculative": draw(_speculative()),
        "priority": draw(st.integers(0, 100)),
        "guarantees": some(draw, {"nodes": 1, **({"rate": "1/s"} if offered else {})}),
    }
    always = ("constraints",) if mode == "colocated" else ()
    return {
        "model": model,
        "workload": workload,
        "engine": draw(_engine(situation, colocated=mode == "colocated")),
        "proxy": draw(_proxy(situation, port)),
        **some(draw, optional, always),
    }


@st.composite
def _speculative(draw: st.DrawFn) -> Part:
    part: Part = {"tokens": draw(st.integers(1, 4)), "acceptance": draw(st.sampled_from(["70%", 0.8]))}
    if draw(st.booleans()):
        return {"method": "ngram", **part}
    return {"method": "eagle3", "model": "/models/draft", **part}
