"""Plan to manifests: findings first, then one view per object, text, and the text read back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disaggc.diagnostics.model import Diagnostic, Outcome, has_errors
from disaggc.emit.artifacts import Artifact, ArtifactSet
from disaggc.emit.engine_part import EnginePart, engine_parts, reaches_out
from disaggc.emit.kubernetes import network
from disaggc.emit.kubernetes.findings import findings
from disaggc.emit.kubernetes.front import endpoint_pool, proxy_deployment, proxy_entrance
from disaggc.emit.kubernetes.objects import (
    POD_ADDRESS,
    Account,
    Budget,
    Cluster,
    Meta,
    PoolService,
    RoutingMap,
    listen_port,
    pool_labels,
    pool_name,
    service_labels,
)
from disaggc.emit.kubernetes.pods import container_ports, engine_set
from disaggc.emit.kubernetes.read_back import check_manifest
from disaggc.emit.pack import TargetPack
from disaggc.emit.routing_file import routing_table, with_metrics
from disaggc.emit.stamp import stamp_of
from disaggc.ir.plan import DeploymentPlan, ServicePlan
from disaggc.routing.table import dump_table
from disaggc.spec.model import KubernetesTarget

BUDGET_V1_MINOR = 21


@dataclass(frozen=True, slots=True)
class _Manifest:
    """A file to be: path inside the service's folder, kind in the pack, view, address."""

    path: str
    kind: str
    view: object
    meta: Meta
    address: str


def emit_kubernetes(
    plan: DeploymentPlan, settings: KubernetesTarget, pack: TargetPack
) -> Outcome[ArtifactSet]:
    """All files of the Kubernetes target. Errors: DGC602, DGC603."""
    found: tuple[Diagnostic, ...] = tuple(findings(plan, settings))
    if has_errors(found):
        return Outcome(None, found)
    cluster = Cluster(plan, settings, stamp_of(plan))
    artifacts: list[Artifact] = []
    for service in plan.services:
        parts = [part for part in engine_parts(plan) if part.service is service and part.serves]
        table = routing_table(
            plan,
            service,
            cluster.host,
            parts={part.replica.address: part for part in parts},
            listen_port=listen_port(service),
        )
        found = (*found, *table.diagnostics)
        if table.value is None:
            continue
        own = with_metrics(table.value, service, POD_ADDRESS)
        manifests = [*_engines(cluster, parts), *_front(cluster, service, dump_table(own))]
        manifests += _network(cluster, service, parts)
        artifacts += (_artifact(pack, service, manifest) for manifest in manifests)
    if has_errors(found):
        return Outcome(None, found)
    return Outcome(ArtifactSet("kubernetes", tuple(sorted(artifacts, key=lambda a: a.path))), found)


def _artifact(pack: TargetPack, service: ServicePlan, manifest: _Manifest) -> Artifact:
    text = pack.text(manifest.kind, manifest.view)
    path = f"{service.name}/{manifest.path}.yaml"
    check_manifest(path, text, manifest.view)
    rule = pack.rule(manifest.kind)
    return Artifact(path, text, pack.mode(manifest.kind), manifest.address, rule.on_change)


def _engines(cluster: Cluster, parts: list[EnginePart]) -> Iterator[_Manifest]:
    for part in parts:
        view = engine_set(cluster, part)
        kind = "leader-worker-set" if part.ranked else "stateful-set"
        name = f"{part.pool_name}-{part.replica.index}"
        yield _Manifest(name, kind, view, view.meta, part.replica.address)
    first = {part.pool.address: part for part in reversed(parts)}
    for address, part in sorted(first.items()):
        service, pool = part.service, part.pool
        name = pool_name(pool)
        selector = tuple(sorted(pool_labels(service, pool)))
        meta = cluster.meta(service, name, component="engine", extra=pool_labels(service, pool)[3:])
        version = "policy/v1" if cluster.minor >= BUDGET_V1_MINOR else "policy/v1beta1"
        ports = PoolService(meta, selector, container_ports(part)[:1])
        yield _Manifest(f"{name}-service", "pool-service", ports, meta, address)
        yield _Manifest(f"{name}-budget", "budget", Budget(meta, version, selector), meta, address)


def _front(cluster: Cluster, service: ServicePlan, table: str) -> Iterator[_Manifest]:
    address = f"{service.name}/proxy"
    deployment, entrance = proxy_deployment(cluster, service), proxy_entrance(cluster, service)
    yield _Manifest("proxy", "proxy", deployment, deployment.meta, address)
    yield _Manifest("proxy-service", "proxy-service", entrance, entrance.meta, address)
    routing = RoutingMap(cluster.meta(service, "routing", component="proxy"), table)
    yield _Manifest("routing", "routing", routing, routing.meta, f"{service.name}/routing")
    if deployment.replicas > 1:
        version = "policy/v1" if cluster.minor >= BUDGET_V1_MINOR else "policy/v1beta1"
        budget = Budget(deployment.meta, version, tuple(sorted(service_labels(service, "proxy"))))
        yield _Manifest("proxy-budget", "budget", budget, budget.meta, address)
    if cluster.settings.service_account is None:
        account = Account(cluster.meta(service, component="account"))
        yield _Manifest("service-account", "service-account", account, account.meta, service.name)
    if cluster.settings.inference_pool:
        pool = endpoint_pool(cluster, service)
        yield _Manifest("inference-pool", "inference-pool", pool, pool.meta, service.name)


def _network(cluster: Cluster, service: ServicePlan, parts: list[EnginePart]) -> Iterator[_Manifest]:
    reach_out = any(reaches_out(part) for part in parts)
    for name, policy in network.policies(cluster, service, reach_out=reach_out):
        yield _Manifest(f"network-{name}", "network-policy", policy, policy.meta, service.name)
