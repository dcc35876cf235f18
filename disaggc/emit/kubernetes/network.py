"""Who may talk to whom: nothing by default, engines among themselves, proxies to engines, clients to proxies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from disaggc.emit.kubernetes.objects import Cluster, Policy, listen_port, service_labels
from disaggc.ir.plan import ServicePlan

Rule = Mapping[str, object]
_NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label that every namespace has from Kubernetes 1.21 on; before that someone must set it."""
DNS: Rule = {"ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def policies(cluster: Cluster, service: ServicePlan, *, reach_out: bool) -> Iterator[tuple[str, Policy]]:
    """Name and policy. reach_out: engines fetch weights from outside."""
    ours = service_labels(service, "engine")[:1] + service_labels(service, "engine")[2:]
    yield (
        "deny",
        Policy(
            meta=cluster.meta(service, "deny", component="network"),
            selector=tuple(sorted(ours)),
            types=("Ingress", "Egress"),
            ingress=(),
            egress=(),
        ),
    )
    engines, proxies = _pods(service, "engine"), _pods(service, "proxy")
    http = sorted({replica.ports.http for pool in service.pools for replica in pool.replicas})
    http_ports = [_tcp(port) for port in http]
    yield (
        "engines",
        Policy(
            meta=cluster.meta(service, "engines", component="network"),
            selector=tuple(sorted(service_labels(service, "engine"))),
            types=("Ingress", "Egress"),
            ingress=(
                {"from": [proxies], "ports": http_ports},
                # KV moves over ports that UCX and the connectors choose at run time.
                {"from": [engines]},
                *_monitoring(cluster, http_ports),
                *_gateway(cluster, http_ports),
            ),
            egress=({},) if reach_out else ({"to": [engines]}, DNS),
        ),
    )
    yield (
        "proxies",
        Policy(
            meta=cluster.meta(service, "proxies", component="network"),
            selector=tuple(sorted(service_labels(service, "proxy"))),
            types=("Ingress", "Egress"),
            ingress=({"ports": [_tcp(listen_port(service))]}, *_scraped(cluster, service)),
            egress=({"to": [engines], "ports": http_ports}, DNS),
        ),
    )


def _pods(service: ServicePlan, component: str) -> Rule:
    return {"podSelector": {"matchLabels": dict(sorted(service_labels(service, component)))}}


def _tcp(port: int) -> Rule:
    return {"protocol": "TCP", "port": port}


def _monitoring(cluster: Cluster, ports: list[Rule]) -> Iterator[Rule]:
    namespace = cluster.settings.monitoring_namespace
    if namespace is not None:
        yield {
            "from": [{"namespaceSelector": {"matchLabels": {_NAMESPACE_NAME: namespace}}}],
            "ports": ports,
        }


def _scraped(cluster: Cluster, service: ServicePlan) -> Iterator[Rule]:
    """The proxies' metrics; without a monitoring namespace nobody reaches them."""
    port = service.proxy.metrics_port
    return iter(()) if port is None else _monitoring(cluster, [_tcp(port)])


def _gateway(cluster: Cluster, ports: list[Rule]) -> Iterator[Rule]:
    """With an InferencePool a gateway, wherever in the cluster it runs, talks to the engines itself."""
    if cluster.settings.inference_pool:
        yield {"from": [{"namespaceSelector": {}}], "ports": ports}
