"""The objects in front of the engines: proxy Deployment, its Service and routing file, InferencePool."""

from __future__ import annotations

from collections.abc import Mapping

from disaggc.emit.images import proxy_image
from disaggc.emit.kubernetes.objects import (
    Cluster,
    EndpointPool,
    ProxyDeployment,
    ProxyEntrance,
    listen_port,
    secret_of,
    service_labels,
)
from disaggc.emit.kubernetes.pods import HOSTNAME
from disaggc.emit.names import label_name
from disaggc.emit.routing_file import api_key_variable, proxy_stop_s
from disaggc.ir.plan import ServicePlan

PRE_STOP_S = 15


def proxy_deployment(cluster: Cluster, service: ServicePlan) -> ProxyDeployment:
    """The proxies; they outlive the requests they carry."""
    labels = service_labels(service, "proxy")
    return ProxyDeployment(
        meta=cluster.meta(service, "proxy", component="proxy"),
        replicas=len(service.proxy.instances),
        selector=tuple(sorted(labels)),
        labels=tuple(sorted((*labels, ("app.kubernetes.io/managed-by", "disaggc")))),
        service_account=cluster.account(service),
        grace_s=PRE_STOP_S + proxy_stop_s(service),
        affinity=_affinity(cluster, service),
        image=proxy_image(service),
        env=_env(service),
        listen_port=listen_port(service),
        metrics_port=service.proxy.metrics_port,
        pre_stop=cluster.pre_stop(PRE_STOP_S),
        config_map=label_name(service.name, "routing"),
    )


def proxy_entrance(cluster: Cluster, service: ServicePlan) -> ProxyEntrance:
    """The Service that clients use."""
    return ProxyEntrance(
        meta=cluster.meta(service, "proxy", component="proxy"),
        selector=tuple(sorted(service_labels(service, "proxy"))),
        port=service.proxy.port,
    )


def endpoint_pool(cluster: Cluster, service: ServicePlan) -> EndpointPool:
    """The InferencePool over the service's engines; its endpoint picker is not ours."""
    return EndpointPool(
        meta=cluster.meta(service, "pool", component="engine"),
        selector=tuple(sorted(service_labels(service, "engine"))),
        port=service.pools[0].replicas[0].ports.http,
        picker=label_name(service.name, "picker"),
    )


def _env(service: ServicePlan) -> tuple[Mapping[str, object], ...]:
    name = api_key_variable(service)
    if name is None:
        return ()
    secret, key = service.proxy.api_key_secret or (secret_of(service), name)
    return ({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}},)


def _affinity(cluster: Cluster, service: ServicePlan) -> Mapping[str, object]:
    """Proxies on different nodes, and rather on the planned ones where these are named."""
    selector = {"matchLabels": dict(sorted(service_labels(service, "proxy")))}
    apart = {"weight": 100, "podAffinityTerm": {"labelSelector": selector, "topologyKey": HOSTNAME}}
    out: dict[str, object] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}}
    planned = sorted({one.node for one in service.proxy.instances if cluster.plan.node(one.node).pinned})
    if planned:
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": planned}]}
        preferred = [{"weight": 50, "preference": term}]
        out = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}, **out}
    return out
