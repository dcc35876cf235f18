"""Plans written by hand, as the compiler would write them, one for each thing an emitter must place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from disaggc.ir.plan import (
    Argument,
    ClassPrediction,
    ConnectorPlan,
    DeploymentPlan,
    EngineRelease,
    EnvVar,
    Expectation,
    FromSecret,
    KvLink,
    LeaderAddress,
    Literally,
    Memory,
    ModelRef,
    Node,
    NodeRank,
    OwnAddress,
    Percentiles,
    Pool,
    Ports,
    Prediction,
    Provenance,
    ProxyInstance,
    ProxyPlan,
    Ratio,
    Replica,
    Role,
    RolloutPolicy,
    ServicePlan,
    Shape,
    Slot,
    SolverReport,
    Timings,
    Value,
)

Vendor = Literal["nvidia", "amd", "cpu"]
AMD_IMAGE = "example.org/vllm-rocm@sha256:" + "1" * 64
NVIDIA_IMAGE = "example.org/vllm-cuda@sha256:" + "2" * 64
PROXY_IMAGE = "example.org/disaggc@sha256:" + "3" * 64
GIB = 2**30


@dataclass(frozen=True)
class Texts:
    """The free texts of one service."""

    model: str = "deepseek-ai/DeepSeek-R1"
    weights: str = "/models/DeepSeek-R1"
    served: str = "deepseek-ai/DeepSeek-R1"
    revision: str | None = None
    command: str = "/opt/vllm/bin/vllm"
    proxy_command: str | None = None
    image: str | None = AMD_IMAGE
    proxy_image: str | None = PROXY_IMAGE
    env: tuple[tuple[str, str], ...] = ()
    secrets: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    api_key: str | None = "DISAGGC_API_KEY"
    api_key_file: str | None = None
    api_key_secret: tuple[str, str] | None = None


def literal(text: str) -> Literally:
    return Literally(value=text)


def prediction(value: float) -> Prediction:
    return Prediction(value=value, low=value * 0.7, high=value * 1.4, basis="prior")


def percentiles(p50: float) -> Percentiles:
    return Percentiles(p50=prediction(p50), p90=prediction(p50 * 2), p99=prediction(p50 * 4))


def expectation() -> Expectation:
    one = ClassPrediction(
        ttft_ms=percentiles(800.0),
        itl_ms=percentiles(30.0),
        e2e_ms=percentiles(240_000.0),
        rate=prediction(2.0),
    )
    return Expectation(
        classes={"reasoning": one},
        output_tok_per_s=prediction(6000.0),
        total_tok_per_s=prediction(6800.0),
        tokens_per_cost=None,
        currency=None,
        bottleneck="decode",
        meets_objectives=True,
    )


def node(index: int, vendor: Vendor, *, pinned: bool = True, accelerators: int = 8, nics: int = 8) -> Node:
    name = f"gpu-{index + 1:02d}" if pinned else f"pool-{index}"
    return Node(
        name=name,
        group="pool",
        address=f"10.0.0.{index + 1}" if pinned else None,
        pinned=pinned,
        vendor=vendor,
        accelerator="mi300x" if vendor == "amd" else "h100-sxm",
        accelerators=accelerators,
        nics=nics,
    )


def ports(first_device: int, shape: Shape, nodes: int, *, kv: bool) -> Ports:
    start = 20000 + 160 * first_device
    return Ports(
        http=start,
        side_channel=start + 4 if kv else None,
        side_channel_width=shape.dp if kv else 0,
        dp_rpc=start + 1 if shape.dp > 1 else None,
        master=start + 2 if nodes > 1 else None,
        internal=start + 60,
        internal_width=100,
    )


KV_ROLES = {
    Role.PREFILL: "kv_producer",
    Role.DECODE: "kv_consumer",
    Role.FLEXIBLE: "kv_both",
    Role.COLOCATED: None,
}


def arguments(role: Role, shape: Shape, at: Ports, *, nodes: int, texts: Texts) -> tuple[Argument, ...]:
    def flag(name: str, value: Value | str | int) -> Argument:
        return Argument(
            flag=f"--{name}", value=literal(str(value)) if isinstance(value, str | int) else value
        )

    out = [flag("served-model-name", texts.served)]
    if texts.revision is not None:
        out.append(flag("revision", texts.revision))
    out += [flag("host", OwnAddress()), flag("port", at.http), flag("tensor-parallel-size", shape.tp)]
    out += [flag("pipeline-parallel-size", shape.pp)]
    if shape.dp > 1:
        local = shape.dp // nodes
        out += [flag("data-parallel-size", shape.dp), flag("data-parallel-size-local", local)]
        out += [flag("data-parallel-rpc-port", at.dp_rpc or 0)]
        if nodes > 1:
            out += [flag("data-parallel-address", LeaderAddress())]
            rank = NodeRank(times=local)
            out += [Argument(flag="--data-parallel-start-rank", value=rank, other_nodes_only=True)]
    elif nodes > 1:
        out += [flag("nnodes", nodes), flag("node-rank", NodeRank())]
        out += [flag("master-addr", LeaderAddress()), flag("master-port", at.master or 0)]
    if nodes > 1:
        out.append(Argument(flag="--headless", other_nodes_only=True))
    out += [flag("max-model-len", 16384), flag("max-num-seqs", 256), flag("block-size", 64)]
    kv_role = KV_ROLES[role]
    if kv_role is not None:
        config = {
            "kv_connector": "NixlConnector",
            "kv_role": kv_role,
            "kv_load_failure_policy": "fail",
            "kv_connector_extra_config": {"kv_lease_duration": 60},
        }
        out.append(flag("kv-transfer-config", json.dumps(config, sort_keys=True)))
    out += [
        Argument(flag=f"--{name}", value=literal(text), because=(f"services.chat.engine.settings.{name}",))
        for name, text in texts.settings
    ]
    return tuple(out)


def variables(at: Ports, *, kv: bool, multi_node: bool, texts: Texts) -> tuple[EnvVar, ...]:
    values: dict[str, Value] = {
        "PYTHONHASHSEED": literal("0"),
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": literal("120"),
        "VLLM_PORT": literal(str(at.internal)),
    }
    if kv:
        values["VLLM_NIXL_SIDE_CHANNEL_HOST"] = OwnAddress()
        values["VLLM_NIXL_SIDE_CHANNEL_PORT"] = literal(str(at.side_channel))
    if multi_node:
        values["VLLM_HOST_IP"] = OwnAddress()
    out = {name: EnvVar(name=name, value=value) for name, value in values.items()}
    for name, text in texts.env:
        out[name] = EnvVar(name=name, value=literal(text), because=(f"services.chat.engine.env.{name}",))
    for name, secret in texts.secrets:
        out[name] = EnvVar(
            name=name, value=FromSecret(name=secret), because=(f"services.chat.engine.env.{name}",)
        )
    return tuple(out[name] for name in sorted(out))


@dataclass(frozen=True)
class Placement:
    """One replica: on which nodes, from which device, how many devices on each."""

    nodes: tuple[str, ...]
    first: int = 0
    count: int = 8


def pool(
    service: str, role: Role, placements: Sequence[Placement], *, shape: Shape, vendor: Vendor, texts: Texts
) -> Pool:
    kv = role is not Role.COLOCATED

    def one(index: int, place: Placement) -> Replica:
        at = ports(place.first, shape, len(place.nodes), kv=kv)
        return Replica(
            address=f"{service}/{role.value}/{index}",
            index=index,
            slots=tuple(
                Slot(node=name, rank=rank, devices=tuple(range(place.first, place.first + place.count)))
                for rank, name in enumerate(place.nodes)
            ),
            ports=at,
            arguments=arguments(role, shape, at, nodes=len(place.nodes), texts=texts),
            env=variables(at, kv=kv, multi_node=len(place.nodes) > 1, texts=texts),
        )

    shutdown = 75 if role is Role.PREFILL else 1200
    worker = 15 if vendor == "amd" else 5
    return Pool(
        address=f"{service}/{role.value}",
        role=role,
        accelerator="mi300x" if vendor == "amd" else "h100-sxm",
        vendor=vendor,
        group="pool",
        shape=shape,
        image=texts.image,
        memory=Memory(
            total=192 * GIB, usable=172 * GIB, weights=90 * GIB, overhead_low=4 * GIB, overhead_high=8 * GIB,
            kv_bytes_per_token=70_272, kv_tokens=1_000_000, kv_tokens_high=1_100_000, sequences=256, leased_tokens=0,
        ),
        timings=Timings(
            pre_stop_s=15, shutdown_s=shutdown, worker_exit_s=worker, grace_s=30 + shutdown + worker, startup_s=1990
        ),
        shm_bytes=16 * GIB,
        host_memory_bytes=None,
        replicas=tuple(one(i, place) for i, place in enumerate(placements)),
        load_per_replica=0.5,
        operating_batch=120.0,
    )  # fmt: skip


def proxy(service: str, nodes: Iterable[str], texts: Texts) -> ProxyPlan:
    return ProxyPlan(
        instances=tuple(ProxyInstance(address=f"{service}/proxy/{i}", node=n) for i, n in enumerate(nodes)),
        port=8000,
        admin_port=19000,
        metrics_port=19500,
        api_key=None if texts.api_key is None else FromSecret(name=texts.api_key),
        api_key_file=texts.api_key_file,
        api_key_secret=texts.api_key_secret,
        image=texts.proxy_image,
        command=texts.proxy_command,
        policy="least-work",
        on_prefill_failure="retry",
        drain_s=1500,
        idle_s=90,
        because=(f"services.{service}.proxy",),
    )


def service_plan(
    name: str,
    pools: tuple[Pool, ...],
    *,
    texts: Texts,
    mode: Literal["disaggregated", "colocated", "flexible"] = "disaggregated",
    transport: Literal["rdma", "tcp", "link"] = "rdma",
    proxies: tuple[str, ...] = ("gpu-01",),
) -> ServicePlan:
    kv = mode != "colocated"
    producers = [p for p in pools if p.role in (Role.PREFILL, Role.FLEXIBLE)]
    consumers = [p for p in pools if p.role in (Role.DECODE, Role.FLEXIBLE)]
    links = tuple(
        KvLink(
            prefill=p.address, decode=d.address, bytes_per_request=72e6, bandwidth=40e9, bandwidth_low=20e9,
            transport=transport,
        )
        for p in producers
        for d in consumers
        if kv
    )  # fmt: skip
    return ServicePlan(
        name=name,
        mode=mode,
        cohort="0123456789",
        model=ModelRef(
            id=texts.model, path=texts.weights, served_name=texts.served, revision=texts.revision,
            max_model_len=16384, kv_bytes_per_token=70_272,
        ),
        engine=EngineRelease(version="0.33.0", snapshot="0.33.0", command=texts.command),
        connector=ConnectorPlan(type="nixl", name="NixlConnector", lease_s=60, load_failure="fail") if kv else None,
        pools=pools,
        links=links,
        proxy=proxy(name, proxies, texts),
        ratio=None,
        nodes=None,
        flexible_ratio=Ratio(prefill=1, decode=len(pools[0].replicas) - 1) if mode == "flexible" else None,
        priorities={"reasoning": 0},
        skip_prefill_below=256,
        predicted=expectation(),
        colocated=None,
        comparison=None,
        alternatives=(),
    )  # fmt: skip


def deployment(services: tuple[ServicePlan, ...], nodes: tuple[Node, ...]) -> DeploymentPlan:
    return DeploymentPlan(
        services=services,
        nodes=nodes,
        fabric="infiniband",
        allow_tcp=False,
        gid_index=None,
        interface=None,
        optimize="throughput",
        rollout=RolloutPolicy(strategy="safe", drain_s=1200, state_backend="local"),
        watch=None,
        provenance=Provenance(
            disaggc="0.1.0", spec="sha256:" + "a" * 64, catalog="sha256:" + "b" * 64, calibration=None
        ),
        solver=SolverReport(status="optimal", objective=1.0, bound=1.0, gap=0.0, wall_s=0.1),
    )


def five_nodes(texts: Texts = Texts(), *, pinned: bool = True) -> DeploymentPlan:
    """Five 8xMI300X nodes, 1P4D, one replica a node."""
    nodes = tuple(node(i, "amd", pinned=pinned) for i in range(5))
    shape = Shape(tp=8)
    names = [n.name for n in nodes]
    pools = (
        pool("chat", Role.PREFILL, [Placement((names[0],))], shape=shape, vendor="amd", texts=texts),
        pool(
            "chat", Role.DECODE, [Placement((n,)) for n in names[1:]], shape=shape, vendor="amd", texts=texts
        ),
    )
    return deployment((service_plan("chat", pools, texts=texts, proxies=(names[0],)),), nodes)


def count_only(texts: Texts = Texts()) -> DeploymentPlan:
    """The same without host names or addresses."""
    return five_nodes(texts, pinned=False)


def one_box(texts: Texts | None = None) -> DeploymentPlan:
    """One 8xH100 box, 4P4D of one accelerator each: KV moves over the link inside the box."""
    texts = texts or Texts(
        model="openai/gpt-oss-120b", weights="openai/gpt-oss-120b", served="gpt-oss", image=NVIDIA_IMAGE
    )
    box = node(0, "nvidia")
    shape = Shape(tp=1)
    prefill = [Placement((box.name,), first=i, count=1) for i in range(4)]
    decode = [Placement((box.name,), first=i, count=1) for i in range(4, 8)]
    pools = (
        pool("chat", Role.PREFILL, prefill, shape=shape, vendor="nvidia", texts=texts),
        pool("chat", Role.DECODE, decode, shape=shape, vendor="nvidia", texts=texts),
    )
    return deployment((service_plan("chat", pools, texts=texts, transport="link"),), (box,))


def multi_node(texts: Texts = Texts(image=NVIDIA_IMAGE)) -> DeploymentPlan:
    """A prefill replica over two nodes by pipeline, a decode replica over two nodes by data parallelism."""
    nodes = tuple(node(i, "nvidia") for i in range(4))
    names = [n.name for n in nodes]
    first, last = [Placement((names[0], names[1]))], [Placement((names[2], names[3]))]
    wide = Shape(tp=1, dp=16, ep=16)
    pools = (
        pool("chat", Role.PREFILL, first, shape=Shape(tp=8, pp=2), vendor="nvidia", texts=texts),
        pool("chat", Role.DECODE, last, shape=wide, vendor="nvidia", texts=texts),
    )
    return deployment((service_plan("chat", pools, texts=texts),), nodes)


def colocated(texts: Texts = Texts()) -> DeploymentPlan:
    """Two colocated replicas."""
    nodes = tuple(node(i, "amd") for i in range(2))
    places = [Placement((n.name,)) for n in nodes]
    pools = (pool("chat", Role.COLOCATED, places, shape=Shape(tp=8), vendor="amd", texts=texts),)
    return deployment((service_plan("chat", pools, texts=texts, mode="colocated"),), nodes)


def flexible(texts: Texts = Texts()) -> DeploymentPlan:
    """Three flexible replicas; two proxies."""
    nodes = tuple(node(i, "amd") for i in range(3))
    places = [Placement((n.name,)) for n in nodes]
    pools = (pool("chat", Role.FLEXIBLE, places, shape=Shape(tp=8), vendor="amd", texts=texts),)
    chat = service_plan("chat", pools, texts=texts, mode="flexible", proxies=("gpu-01", "gpu-02"))
    return deployment((chat,), nodes)


PLANS = {
    "five-nodes": five_nodes,
    "count-only": count_only,
    "one-box": one_box,
    "multi-node": multi_node,
    "colocated": colocated,
    "flexible": flexible,
}
"""Every plan by name."""

ADDRESSED = {name: make for name, make in PLANS.items() if name != "count-only"}
"""Those that systemd can place."""
