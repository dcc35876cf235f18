"""The part of the spec that says where a plan goes and how it gets and stays there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from disaggc.spec.names import Directory, KubeLabel, KubeName, KubeVersion, Name, Part, Resource, UnixUser
from disaggc.spec.quantities import Duration, DurationOrAuto, Share


class KubernetesTarget(Part):
    """Settings of the Kubernetes target."""

    namespace: KubeLabel = "default"
    """Namespace of every object."""
    kube_version: KubeVersion = "1.30"
    """Server version; decides API versions and native sidecars."""
    accelerator_resource: Resource | None = None
    """Extended resource of the accelerators; absent means the vendor's."""
    rdma_resource: Resource | None = None
    """Extended resource of the RDMA device plugin."""
    rdma_count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of it each replica asks for."""
    service_account: KubeName | None = None
    """ServiceAccount of the pods; its token is not mounted."""
    model_volume: KubeName | None = None
    """PersistentVolumeClaim with the weights; absent means a hostPath at `weights`."""
    monitoring_namespace: KubeLabel | None = None
    """Namespace whose Prometheus may scrape."""
    priority_class: KubeName | None = None
    """PriorityClass of the engine pods."""
    inference_pool: bool = False
    """Also emit a Gateway API InferencePool per service."""


class SystemdTarget(Part):
    """Settings of the systemd target."""

    ssh_user: UnixUser = "root"
    """User that copies units and runs systemctl."""
    run_as: UnixUser = "vllm"
    """System user the services run as."""
    directory: Directory = "/etc/disaggc"
    """Where configuration and secrets lie on the hosts."""


class ComposeTarget(Part):
    """Settings of the compose target."""

    project: Name = "disaggc"
    """Project name on every host."""
    directory: Directory = "/etc/disaggc"
    """Where secrets lie on the hosts."""


class LocalTarget(Part):
    """Settings of the local target: every process of the plan on this machine, for trying it out."""

    engine: Literal["vllm", "sim"] = "vllm"
    """vllm runs `engine.command`, sim the engine double that ships with disaggc."""
    base_port: Annotated[int, Field(ge=3000, le=31000)] = 20000
    """First port of the engines; the proxies' administration lies 1000 below."""
    time_scale: Annotated[float, Field(ge=1, le=1000)] | None = None
    """How much faster than the clock the doubles run; only with `engine: sim`."""


class Targets(Part):
    """Settings per target; only the chosen one is used."""

    kubernetes: KubernetesTarget | None = None
    """Kubernetes manifests."""
    systemd: SystemdTarget | None = None
    """systemd units."""
    compose: ComposeTarget | None = None
    """Compose files, one project per host."""
    local: LocalTarget | None = None
    """Processes on this machine."""


class State(Part):
    """Where the record of what was applied is kept."""

    backend: Literal["local", "kubernetes"] = "local"
    """`local` keeps it beside the spec, `kubernetes` in the cluster."""


class Rollout(Part):
    """How a change is carried out."""

    strategy: Literal["safe", "fast"] = "safe"
    """safe keeps capacity while replicas are exchanged."""
    drain_timeout: DurationOrAuto = "auto"
    """How long a replica may finish its requests; auto is the plan's p99 E2E plus a margin."""


class Watch(Part):
    """How drift is answered."""

    mode: Literal["observe", "propose", "apply"] = "propose"
    """observe only reports, propose writes a plan, apply rolls it out."""
    interval: Duration = 30.0
    """Time between scrapes."""
    cooldown: Duration = 900.0
    """Least time between two changes."""
    min_gain: Share = 0.05
    """Least predicted gain that justifies a change."""
