"""What stands in the manifests besides pods, typed and unquoted; and the names and labels that join them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from disaggc.emit.engine_part import EnginePart
from disaggc.emit.names import label_name
from disaggc.emit.stamp import Stamp
from disaggc.ir.plan import DeploymentPlan, Pool, Role, ServicePlan
from disaggc.spec.model import KubernetesTarget

Pairs = tuple[tuple[str, str], ...]
ENGINE_NAME_LIMIT = 52
"""A StatefulSet's pods carry its name and eleven more characters in a label of at most 63."""
PROXY_FLOOR_PORT = 1024
"""A proxy without root cannot listen below; the Service maps the port."""
PROXY_INSIDE_PORT = 8080
POD_ADDRESS = "0.0.0.0"  # noqa: S104 - inside a pod, whose network policies say who reaches it
PICKER_ROLES = {
    Role.PREFILL: "prefill",
    Role.DECODE: "decode",
    Role.COLOCATED: "prefill-decode",
    Role.FLEXIBLE: "prefill-decode",
}
"""How endpoint pickers of the Gateway API inference extension call the roles."""


@dataclass(frozen=True, slots=True)
class Meta:
    """An object's metadata."""

    name: str
    namespace: str
    labels: Pairs
    stamp: Stamp
    revision: str


@dataclass(frozen=True, slots=True)
class PoolService:
    """The headless Service of a pool."""

    meta: Meta
    selector: Pairs
    ports: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget."""

    meta: Meta
    api_version: str
    selector: Pairs


@dataclass(frozen=True, slots=True)
class ProxyDeployment:
    """The proxies of a service."""

    meta: Meta
    replicas: int
    selector: Pairs
    labels: Pairs
    service_account: str
    grace_s: int
    affinity: Mapping[str, object]
    image: str
    env: tuple[Mapping[str, object], ...]
    listen_port: int
    metrics_port: int | None
    pre_stop: Mapping[str, object]
    config_map: str


@dataclass(frozen=True, slots=True)
class ProxyEntrance:
    """The Service that clients use."""

    meta: Meta
    selector: Pairs
    port: int


@dataclass(frozen=True, slots=True)
class RoutingMap:
    """The ConfigMap with the routing file."""

    meta: Meta
    table: str


@dataclass(frozen=True, slots=True)
class Account:
    """The ServiceAccount of a service's pods."""

    meta: Meta


@dataclass(frozen=True, slots=True)
class Policy:
    """A NetworkPolicy."""

    meta: Meta
    selector: Pairs
    types: tuple[str, ...]
    ingress: tuple[Mapping[str, object], ...]
    egress: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class EndpointPool:
    """An InferencePool."""

    meta: Meta
    selector: Pairs
    port: int
    picker: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is the same for every object of one plan."""

    plan: DeploymentPlan
    settings: KubernetesTarget
    stamp: Stamp

    @property
    def minor(self) -> int:
        """Minor version of the server."""
        return int(self.settings.kube_version.partition(".")[2])

    def meta(self, service: ServicePlan, *name: str, component: str, extra: Pairs = ()) -> Meta:
        """Metadata of an object of the service; `name` follows the prefix and the service's name."""
        labels = (*service_labels(service, component), *extra, ("app.kubernetes.io/managed-by", "disaggc"))
        return Meta(
            name=label_name(service.name, *name),
            namespace=self.settings.namespace,
            labels=tuple(sorted(labels)),
            stamp=self.stamp,
            revision=service.cohort,
        )

    def account(self, service: ServicePlan) -> str:
        """ServiceAccount of the service's pods."""
        return self.settings.service_account or label_name(service.name)

    def pre_stop(self, seconds: int) -> Mapping[str, object]:
        """A pause before SIGTERM: built in from 1.30 on, before that a program in the container."""
        if self.minor >= 30:
            return {"sleep": {"seconds": seconds}}
        return {"exec": {"command": ["sleep", str(seconds)]}}

    def host(self, part: EnginePart) -> str:
        """DNS name of the pod that answers HTTP for the replica."""
        name = engine_name(part)
        domain = name if part.ranked else pool_service_name(part.service, part.pool)
        return f"{name}-0.{domain}.{self.settings.namespace}.svc"


def service_labels(service: ServicePlan, component: str) -> Pairs:
    """Labels that select a component (engine, proxy) of a service; they never change, so selectors may use them."""
    return (
        ("app.kubernetes.io/name", "disaggc"),
        ("app.kubernetes.io/component", component),
        ("disaggc.dev/service", service.name),
    )


def pool_name(pool: Pool) -> str:
    """`prefill`, or `prefill-h100`."""
    return pool.address.rpartition("/")[2]


def pool_labels(service: ServicePlan, pool: Pool) -> Pairs:
    """Labels that select a pool's engines."""
    return (
        *service_labels(service, "engine"),
        ("disaggc.dev/pool", pool_name(pool)),
        ("disaggc.dev/role", pool.role.value),
    )


def engine_name(part: EnginePart) -> str:
    """`disaggc-chat-prefill-0`."""
    return label_name(part.service.name, part.pool_name, str(part.replica.index), limit=ENGINE_NAME_LIMIT)


def pool_service_name(service: ServicePlan, pool: Pool) -> str:
    """`disaggc-chat-prefill`."""
    return label_name(service.name, pool_name(pool))


def secret_of(service: ServicePlan) -> str:
    """The Secret that holds the service's secrets, one key for each name."""
    return label_name(service.name)


def listen_port(service: ServicePlan) -> int:
    """Port on which the proxy's container listens."""
    return service.proxy.port if service.proxy.port >= PROXY_FLOOR_PORT else PROXY_INSIDE_PORT
