"""Plan to compose files: findings first, then one view per host, text, and the text read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from disaggc.diagnostics.model import Diagnostic, Outcome, error, has_errors
from disaggc.emit import free_text
from disaggc.emit.artifacts import Artifact, ArtifactSet
from disaggc.emit.compose.view import (
    EngineService,
    Project,
    ProxyService,
    engine_service,
    proxy_service,
    rooms,
)
from disaggc.emit.engine_part import EnginePart, engine_parts
from disaggc.emit.images import image_findings, proxy_image
from disaggc.emit.meant import ReadBackError, expect
from disaggc.emit.pack import TargetPack
from disaggc.emit.quoting import UnsafeTextError, process_text
from disaggc.emit.reading.documents import UnreadableDocumentError, all_interpolated, at, read_documents
from disaggc.emit.routing_file import routing_table, with_metrics
from disaggc.emit.stamp import stamp_of
from disaggc.ir.plan import DeploymentPlan, ServicePlan
from disaggc.routing.table import RoutingTable, dump_table, load_table
from disaggc.spec.model import ComposeTarget


def _mounted(text: str) -> None:
    free_text.absolute_path(text)
    process_text(text)
    if len(text.encode()) > 4095:
        raise UnsafeTextError("is longer than a path may be")


CHECKS: Mapping[free_text.Kind, Callable[[str], object]] = {
    "argument": process_text,
    "positional": free_text.no_flag,
    "variable": process_text,
    "variable-name": free_text.variable_name,
    "image": free_text.image_reference,
    "secret": free_text.secret_name,
    "key-file": _mounted,
    "weights": _mounted,
    "name": free_text.plain_name,
    "address": free_text.host_address,
}


def emit_compose(plan: DeploymentPlan, settings: ComposeTarget, pack: TargetPack) -> Outcome[ArtifactSet]:
    """All files of the compose target. Errors: DGC602, DGC603, DGC604."""
    findings = (*_missing(plan), *image_findings(plan, "compose"), *free_text.refused(plan, CHECKS))
    if has_errors(findings):
        return Outcome(None, findings)
    artifacts: list[Artifact] = []
    parts = tuple(engine_parts(plan))
    for service in plan.services:
        leads = {part.replica.address: part for part in parts if part.service is service}
        table = routing_table(plan, service, lambda part: part.node.address or "", parts=leads)
        findings = (*findings, *table.diagnostics)
        if table.value is None:
            continue
        folder = f"{settings.directory.strip('/')}/{service.name}"
        artifacts += (
            Artifact(
                path=f"{node}/{folder}/routing.json",
                text=_routing(plan, service, table.value, node=node),
                mode=pack.mode("routing"),
                address=f"{service.name}/routing",
                on_change=pack.rule("routing").on_change,
                host=node,
            )
            for node in sorted({instance.node for instance in service.proxy.instances})
        )
    if has_errors(findings):
        return Outcome(None, findings)
    artifacts += _projects(plan, settings, pack, parts=parts)
    return Outcome(ArtifactSet("compose", tuple(sorted(artifacts, key=lambda a: a.path))), findings)


def _routing(plan: DeploymentPlan, service: ServicePlan, table: RoutingTable, *, node: str) -> str:
    """The routing file of the proxy on a node, read back."""
    own = with_metrics(table, service, plan.node(node).address)
    text = dump_table(own)
    expect(f"{service.name}/routing.json", "table", meant=own, read=load_table(text))
    return text


def _missing(plan: DeploymentPlan) -> Iterator[Diagnostic]:
    for group in sorted({node.group for node in plan.nodes if node.address is None}):
        yield error(
            "DGC604",
            f"`cluster.nodes.{group}` gives a count, compose needs to know each host's name and address",
            ("cluster", "nodes", group),
            help="write `hosts: {name: address, ...}` in place of `count`",
        )
    for service in plan.services:
        at_proxy = ("services", service.name, "proxy", "api_key")
        if service.proxy.api_key_secret is not None:
            yield error(
                "DGC602",
                f"`services.{service.name}.proxy.api_key` names a Kubernetes secret, compose has none",
                at_proxy,
                help="write `api_key: {env: NAME}` or `{file: /path}`",
            )
        for pool in service.pools:
            if any(len(replica.slots) > 1 for replica in pool.replicas):
                yield error(
                    "DGC602",
                    f"pool `{pool.address}` has replicas on {len(pool.replicas[0].slots)} nodes ({pool.shape}), "
                    "a compose project ends at one host",
                    ("services", service.name, "constraints"),
                    help="allow only shapes that fit one node, or use target `kubernetes` or `systemd`",
                )


def _projects(
    plan: DeploymentPlan, settings: ComposeTarget, pack: TargetPack, *, parts: tuple[EnginePart, ...]
) -> Iterator[Artifact]:
    proxies = [(service, one) for service in plan.services for one in service.proxy.instances]
    stamp = stamp_of(plan)
    hosts = {part.node.name for part in parts} | {instance.node for _, instance in proxies}
    for host in sorted(hosts):
        here = [part for part in parts if part.node.name == host]
        project = Project(
            stamp=stamp,
            project=settings.project,
            rooms=rooms(here),
            engines=tuple(engine_service(plan, part, settings) for part in here),
            proxies=tuple(
                proxy_service(service, one, settings, image=proxy_image(service))
                for service, one in proxies
                if one.node == host
            ),
        )
        path = f"{host}/{settings.directory.strip('/')}/compose.yaml"
        text = pack.text("project", project)
        _check(path, text, project)
        yield Artifact(path, text, pack.mode("project"), f"node/{host}", pack.rule("project").on_change, host)


def _check(path: str, text: str, project: Project) -> None:
    try:
        (raw,) = read_documents(text)
        document = all_interpolated(raw)
    except (UnreadableDocumentError, ValueError) as problem:
        raise ReadBackError(f"{path}: {problem}") from None
    services = at(document, "services")
    runs: tuple[EngineService | ProxyService, ...] = (*project.engines, *project.proxies)
    names = {room.name for room in project.rooms} | {run.name for run in runs}
    expect(path, "services", meant=names, read=set(services) if isinstance(services, dict) else services)
    for engine in project.engines:
        one = at(services, engine.name)
        expect(path, "environment", meant=dict(engine.environment), read=at(one, "environment"))
        sources = [at(v, "source") for v in _list(at(one, "volumes")) if at(v, "type") == "bind"]
        expect(path, "weights", meant=[engine.weights] if engine.weights else [], read=sources)
    for run in runs:
        one = at(services, run.name)
        expect(path, "image", meant=run.image, read=at(one, "image"))
        expect(path, "entrypoint", meant=list(run.entrypoint), read=at(one, "entrypoint"))
        expect(path, "command", meant=list(run.command), read=at(one, "command"))
        expect(
            path,
            "env_file",
            meant=list(run.env_files),
            read=[at(f, "path") for f in _list(at(one, "env_file"))],
        )
        expect(path, "healthcheck", meant=list(run.health), read=at(one, "healthcheck", "test"))
        expect(path, "labels", meant=dict(run.labels), read=at(one, "labels"))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
