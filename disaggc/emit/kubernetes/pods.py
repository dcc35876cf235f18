"""Engine pods: the plan's words and variables in Kubernetes' terms; `$` is doubled in all but references."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from disaggc.emit.engine_part import EnginePart, rank_arguments, serve_words
from disaggc.emit.kubernetes.objects import (
    PICKER_ROLES,
    Cluster,
    Meta,
    Pairs,
    engine_name,
    pool_labels,
    pool_service_name,
    secret_of,
    service_labels,
)
from disaggc.emit.shell import RUN_ARGUMENTS
from disaggc.ir.plan import Argument, FromSecret, LeaderAddress, Literally, NodeRank, OwnAddress, Value

POD_IP = "DISAGGC_POD_IP"
RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "cpu": None}
STARTUP_PERIOD_S = 30
STARTUP_DELAY_S = 15
_SWEEP = "find /dev/shm -type f -delete 2>/dev/null; "
"""A restarted container finds the segments of the one before it."""
_FLAG = re.compile(r"--[a-z0-9][a-z0-9.\-]*")
HOSTNAME = "kubernetes.io/hostname"
GROUP_LABEL = "disaggc.dev/node-group"
"""Label that nodes must carry where the spec only counts them and has several groups."""


@dataclass(frozen=True, slots=True)
class EnginePod:
    """One engine pod."""

    labels: Pairs
    service_account: str
    priority_class: str | None
    grace_s: int
    node_selector: Mapping[str, str] | None
    affinity: Mapping[str, object] | None
    tolerations: tuple[Mapping[str, str], ...]
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[Mapping[str, object], ...]
    ports: tuple[tuple[str, int], ...]
    resources: Mapping[str, str]
    serves: bool
    startup_period_s: int
    startup_failures: int
    pre_stop: Mapping[str, object]
    shm_bytes: int
    weights: str | None
    claim: str | None


@dataclass(frozen=True, slots=True)
class EngineSet:
    """A StatefulSet, or a LeaderWorkerSet when `worker` is there."""

    meta: Meta
    pool_service: str
    selector: Pairs
    size: int
    pod: EnginePod
    worker: EnginePod | None


def engine_set(cluster: Cluster, part: EnginePart) -> EngineSet:
    """The object that keeps one replica; `part` is its first node's."""
    extra = (*pool_labels(part.service, part.pool)[3:], ("disaggc.dev/replica", str(part.replica.index)))
    meta = cluster.meta(
        part.service, part.pool_name, str(part.replica.index), component="engine", extra=extra
    )
    return EngineSet(
        meta=Meta(engine_name(part), meta.namespace, meta.labels, meta.stamp, meta.revision),
        pool_service=pool_service_name(part.service, part.pool),
        selector=tuple(sorted((*pool_labels(part.service, part.pool), extra[-1]))),
        size=len(part.replica.slots),
        pod=engine_pod(cluster, part, leader=True),
        worker=engine_pod(cluster, part, leader=False) if part.ranked else None,
    )


def engine_pod(cluster: Cluster, part: EnginePart, *, leader: bool) -> EnginePod:
    """The pod of the first node, or the one that all later nodes share."""
    timings, settings = part.pool.timings, cluster.settings
    replica = str(part.replica.index)
    labels = [*pool_labels(part.service, part.pool), ("disaggc.dev/replica", replica)]
    labels.append(("disaggc.dev/cohort", part.service.cohort))
    if settings.inference_pool:
        labels.append(("llm-d.ai/role", PICKER_ROLES[part.pool.role]))
    command, args = _command(part, leader=leader)
    resource = settings.accelerator_resource or RESOURCES[part.pool.vendor]
    model = part.service.model.path
    return EnginePod(
        labels=tuple(sorted(labels)),
        service_account=cluster.account(part.service),
        priority_class=settings.priority_class,
        grace_s=timings.grace_s,
        node_selector=_node_selector(cluster, part, leader=leader),
        affinity=_affinity(part, leader=leader),
        tolerations=()
        if resource is None
        else ({"key": resource, "operator": "Exists", "effect": "NoSchedule"},),
        image=part.pool.image or "",
        command=command,
        args=args,
        env=_env(part, leader=leader),
        ports=container_ports(part),
        resources=_resources(cluster, part, resource),
        serves=leader,
        startup_period_s=STARTUP_PERIOD_S,
        startup_failures=max(1, math.ceil((timings.startup_s - STARTUP_DELAY_S) / STARTUP_PERIOD_S)),
        pre_stop=cluster.pre_stop(timings.pre_stop_s),
        shm_bytes=part.pool.shm_bytes,
        weights=model if model.startswith("/") else None,
        claim=settings.model_volume,
    )


def literal(text: str) -> str:
    """A text that Kubernetes leaves as it is: it reads `$$` as `$` and `$(NAME)` as a variable."""
    return text.replace("$", "$$")


def _value(part: EnginePart, value: Value, *, leader: bool) -> str:
    match value:
        case Literally():
            return literal(value.value)
        case OwnAddress():
            return f"$({POD_IP})"
        case LeaderAddress():
            return "$(LWS_LEADER_ADDRESS)" if part.ranked else f"$({POD_IP})"
        case NodeRank():
            if not leader and len(part.replica.slots) > 2:
                if (value.times, value.plus) != (1, 0):
                    raise ValueError("Kubernetes' variables cannot compute with a rank")
                return "$(LWS_WORKER_INDEX)"
            # With two nodes the only later one has rank 1.
            return str((0 if leader else 1) * value.times + value.plus)
        case FromSecret():
            raise ValueError("a secret never stands in a command line")


def _command(part: EnginePart, *, leader: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A shell that clears shared memory and becomes the engine. Ranks that only the pod knows are computed there."""
    arguments = rank_arguments(part.replica, first=leader)
    computed = () if leader or len(part.replica.slots) == 2 else tuple(filter(_ranked, arguments))
    given = tuple(a for a in arguments if a not in computed)
    words = serve_words(part.service, given, lambda value: _value(part, value, leader=leader))
    ranks = "".join(_computed_rank(argument) for argument in computed)
    # serve_words returns the model path as it stands; values are escaped already.
    args = ("vllm", words[0], literal(words[1]), *words[2:])
    return ("/bin/sh", "-c", literal(f"{_SWEEP}{RUN_ARGUMENTS}{ranks}"), "disaggc"), args


def _ranked(argument: Argument) -> bool:
    return isinstance(argument.value, NodeRank)


def _computed_rank(argument: Argument) -> str:
    if not isinstance(argument.value, NodeRank) or _FLAG.fullmatch(argument.flag) is None:
        raise ValueError(f"`{argument.flag}` cannot be computed in the pod")
    return f' {argument.flag} "$((LWS_WORKER_INDEX * {argument.value.times} + {argument.value.plus}))"'


def _env(part: EnginePart, *, leader: bool) -> tuple[Mapping[str, object], ...]:
    entries: list[Mapping[str, object]] = [
        {"name": POD_IP, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    ]
    for variable in sorted(part.replica.env, key=lambda v: v.name):
        match variable.value:
            case FromSecret():
                source = {"secretKeyRef": {"name": secret_of(part.service), "key": variable.value.name}}
                entries.append({"name": variable.name, "valueFrom": source})
            case OwnAddress():
                entries.append(
                    {"name": variable.name, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
                )
            case _:
                entries.append({"name": variable.name, "value": _value(part, variable.value, leader=leader)})
    return tuple(entries)


def container_ports(part: EnginePart) -> tuple[tuple[str, int], ...]:
    """Every port of the plan with a short name."""
    ports = part.replica.ports
    out = [("http", ports.http)]
    if ports.side_channel is not None:
        out += [(f"kv-{i}", ports.side_channel + i) for i in range(max(1, ports.side_channel_width))]
    if ports.notify is not None:
        out += [(f"kv-notify-{i}", ports.notify + i) for i in range(max(1, ports.side_channel_width))]
    single = (("kv-bootstrap", ports.bootstrap), ("dp-rpc", ports.dp_rpc), ("master", ports.master))
    out += [(name, port) for name, port in single if port is not None]
    return tuple(out)


def _resources(cluster: Cluster, part: EnginePart, resource: str | None) -> Mapping[str, str]:
    out: dict[str, str] = {}
    if resource is not None:
        out[resource] = str(len(part.slot.devices))
    if cluster.settings.rdma_resource is not None:
        out[cluster.settings.rdma_resource] = str(cluster.settings.rdma_count)
    if part.pool.host_memory_bytes is not None:
        out["memory"] = str(part.pool.host_memory_bytes)
    return out


def _node_selector(cluster: Cluster, part: EnginePart, *, leader: bool) -> Mapping[str, str] | None:
    if part.node.pinned:
        return {HOSTNAME: part.node.name} if leader else None
    groups = {node.group for node in cluster.plan.nodes}
    return {GROUP_LABEL: part.node.group} if len(groups) > 1 else None


def _affinity(part: EnginePart, *, leader: bool) -> Mapping[str, object] | None:
    """Later nodes of a pinned replica: exactly its other hosts. Not pinned: rather not beside the other roles."""
    if part.node.pinned:
        if leader:
            return None
        others = [slot.node for slot in part.replica.slots if slot.rank > 0]
        required = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": others}]}
        return {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [required]}
            }
        }
    other_roles = {
        "matchLabels": dict(service_labels(part.service, "engine")),
        "matchExpressions": [
            {"key": "disaggc.dev/role", "operator": "NotIn", "values": [part.pool.role.value]}
        ],
    }
    apart = {"weight": 50, "podAffinityTerm": {"labelSelector": other_roles, "topologyKey": HOSTNAME}}
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}}
