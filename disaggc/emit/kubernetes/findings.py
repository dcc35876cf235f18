"""What a plan asks that Kubernetes cannot give, or gives differently than the plan assumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from disaggc.diagnostics.model import Diagnostic, error, warning
from disaggc.emit import free_text
from disaggc.emit.images import image_findings
from disaggc.emit.kubernetes.pods import GROUP_LABEL
from disaggc.emit.quoting import UnsafeTextError, process_text
from disaggc.ir.plan import DeploymentPlan, ServicePlan
from disaggc.spec.model import KubernetesTarget
from disaggc.units import format_speed

OLDEST_MINOR = 20


def _mounted(text: str) -> None:
    free_text.absolute_path(text)
    process_text(text)
    if ":" in text:
        raise UnsafeTextError("holds a colon, which Kubernetes refuses in a mount path")
    if len(text.encode()) > 4095:
        raise UnsafeTextError("is longer than a path may be")


CHECKS: Mapping[free_text.Kind, Callable[[str], object]] = {
    "argument": process_text,
    "positional": free_text.no_flag,
    "variable": process_text,
    "variable-name": free_text.variable_name,
    "image": free_text.image_reference,
    "secret": free_text.secret_name,
    "weights": _mounted,
    "name": free_text.plain_name,
}


def findings(plan: DeploymentPlan, settings: KubernetesTarget) -> Iterator[Diagnostic]:
    """Errors DGC602, DGC603; warnings DGC602, DGC606, DGC607."""
    yield from _of_settings(plan, settings)
    yield from image_findings(plan, "kubernetes")
    yield from free_text.refused(plan, CHECKS)
    for service in plan.services:
        yield from _of_service(plan, service, settings)


def _of_settings(plan: DeploymentPlan, settings: KubernetesTarget) -> Iterator[Diagnostic]:
    at = ("targets", "kubernetes")
    if int(settings.kube_version.partition(".")[2]) < OLDEST_MINOR:
        yield error(
            "DGC602",
            f"`targets.kubernetes.kube_version` is {settings.kube_version}, the oldest that is supported is 1.20",
            (*at, "kube_version"),
            help='write e.g. `kube_version: "1.33"`',
        )
    vendors = sorted({pool.vendor for service in plan.services for pool in service.pools})
    if settings.accelerator_resource is not None and len(vendors) > 1:
        yield error(
            "DGC602",
            f"`targets.kubernetes.accelerator_resource` names one resource, the plan uses accelerators of "
            f"{' and '.join(vendors)}",
            (*at, "accelerator_resource"),
            help="leave it out: the vendors' own resources are used",
        )
    groups = sorted({node.group for node in plan.nodes})
    if len(groups) > 1 and any(not node.pinned for node in plan.nodes):
        yield warning(
            "DGC602",
            f"`cluster.nodes` has {len(groups)} groups, some of them without host names: the pods select nodes by "
            f"the label `{GROUP_LABEL}`, and without it they stay pending",
            ("cluster", "nodes"),
            help=f"kubectl label node NODE {GROUP_LABEL}={groups[0]}",
        )


def _of_service(
    plan: DeploymentPlan, service: ServicePlan, settings: KubernetesTarget
) -> Iterator[Diagnostic]:
    at = ("services", service.name)
    if service.proxy.api_key_file is not None:
        yield error(
            "DGC602",
            f"`services.{service.name}.proxy.api_key` names a file, pods have none of the hosts' files",
            (*at, "proxy", "api_key"),
            help="write `api_key: {env: NAME}` or `{kubernetes_secret: {name: ..., key: ...}}`",
        )
    if settings.model_volume is not None and not service.model.path.startswith("/"):
        yield error(
            "DGC602",
            f"`targets.kubernetes.model_volume` is set, `services.{service.name}.model.weights` does not say where "
            "the volume is mounted",
            (*at, "model"),
            help="write `weights: /path`",
        )
    inside = [link for link in service.links if link.transport == "link"]
    if inside:
        lost = settings.rdma_resource is None and not plan.allow_tcp
        report = error if lost else warning
        yield report(
            "DGC602",
            f"service `{service.name}` moves KV over the link inside a node, but a pod sees only its own "
            f"accelerators: KV goes over {'TCP' if settings.rdma_resource is None else 'the RDMA cards'} instead, "
            f"slower than the {format_speed(max(link.bandwidth for link in inside))} that predictions count on",
            ("targets", "kubernetes"),
            help=("set `rdma_resource`, or " if settings.rdma_resource is None else "")
            + "use target `systemd` or `compose` on a single node",
        )
    ports = sorted({replica.ports.http for pool in service.pools for replica in pool.replicas})
    if settings.inference_pool and len(ports) > 1:
        yield error(
            "DGC602",
            f"`targets.kubernetes.inference_pool` needs one HTTP port for all engines, service `{service.name}` has "
            f"{len(ports)} ({ports[0]} to {ports[-1]})",
            ("targets", "kubernetes", "inference_pool"),
            help="set `inference_pool: false`, or let each replica take a whole node",
        )
    for pool in service.pools:
        if len(pool.replicas) == 1:
            yield warning(
                "DGC607",
                f"pool `{pool.address}` has one replica: while its node is drained, service `{service.name}` has no "
                f"{pool.role.value} engine",
                (*at, "constraints"),
                help="set `constraints.spare_replicas: 1` where that must not happen",
            )
