"""Plan to systemd files: findings first, then views, text, and each text read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from disaggc.diagnostics.model import Diagnostic, Outcome, error, has_errors, warning
from disaggc.emit import free_text
from disaggc.emit.artifacts import Artifact, ArtifactSet
from disaggc.emit.engine_part import EnginePart, engine_parts, reaches_out
from disaggc.emit.meant import ReadBackError, expect
from disaggc.emit.names import engine_unit
from disaggc.emit.pack import TargetPack
from disaggc.emit.quoting import process_text, unit_argument, unit_executable, unit_line
from disaggc.emit.reading.units import Unit, UnreadableUnitError, read_unit
from disaggc.emit.routing_file import routing_table, with_metrics
from disaggc.emit.stamp import stamp_of
from disaggc.emit.systemd.view import (
    EngineUnit,
    Host,
    ProxyUnit,
    engine_view,
    peer_addresses,
    proxy_unit_of,
    proxy_view,
)
from disaggc.ir.plan import DeploymentPlan, ServicePlan
from disaggc.routing.table import dump_table, load_table
from disaggc.spec.model import SystemdTarget

UNITS = "etc/systemd/system"


def _key_file(text: str) -> None:
    free_text.absolute_path(text)
    unit_line(text)


CHECKS: Mapping[free_text.Kind, Callable[[str], object]] = {
    "argument": unit_argument,
    "positional": free_text.no_flag,
    "variable": process_text,
    "variable-name": free_text.variable_name,
    "executable": unit_executable,
    "secret": free_text.secret_name,
    "key-file": _key_file,
    "name": free_text.plain_name,
    "address": free_text.host_address,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Emission:
    plan: DeploymentPlan
    pack: TargetPack
    host: Host
    parts: tuple[EnginePart, ...]

    def file(self, node: str, path: str, kind: str, *, text: str, address: str) -> Artifact:
        rule = self.pack.rule(kind)
        return Artifact(
            f"{node}/{path.lstrip('/')}", text, self.pack.mode(kind), address, rule.on_change, node
        )


def emit_systemd(plan: DeploymentPlan, settings: SystemdTarget, pack: TargetPack) -> Outcome[ArtifactSet]:
    """All files of the systemd target. Errors: DGC602, DGC603, DGC604."""
    findings = (*_missing(plan), *free_text.refused(plan, CHECKS), *_open_engines(plan))
    if has_errors(findings):
        return Outcome(None, findings)
    host = Host(settings.directory.rstrip("/"), settings.run_as, stamp_of(plan).line)
    emission = _Emission(plan, pack, host, tuple(engine_parts(plan)))
    artifacts = [*_engines(emission), *_check_scripts(emission)]
    for service in plan.services:
        proxies = _proxies(emission, service)
        findings = (*findings, *proxies.diagnostics)
        artifacts += proxies.value or ()
    if has_errors(findings):
        return Outcome(None, findings)
    return Outcome(ArtifactSet("systemd", tuple(sorted(artifacts, key=lambda a: a.path))), findings)


def _missing(plan: DeploymentPlan) -> Iterator[Diagnostic]:
    groups = sorted({node.group for node in plan.nodes if node.address is None})
    for group in groups:
        yield error(
            "DGC604",
            f"`cluster.nodes.{group}` gives a count, systemd needs to know each host's name and address",
            ("cluster", "nodes", group),
            help="write `hosts: {name: address, ...}` in place of `count`",
        )
    for service in plan.services:
        at = ("services", service.name)
        if service.engine.command is None:
            yield error(
                "DGC602",
                f"`services.{service.name}.engine.command` is not set, systemd starts vllm from the host",
                (*at, "engine"),
                help="write `command: /path/to/vllm`",
            )
        if service.proxy.api_key_secret is not None:
            yield error(
                "DGC602",
                f"`services.{service.name}.proxy.api_key` names a Kubernetes secret, systemd has none",
                (*at, "proxy", "api_key"),
                help="write `api_key: {env: NAME}` or `{file: /path}`",
            )


def _open_engines(plan: DeploymentPlan) -> Iterator[Diagnostic]:
    """Where engines cannot be fenced in, say so."""
    if all(node.address is not None for node in plan.nodes) and not peer_addresses(plan):
        yield warning(
            "DGC605",
            "`cluster.nodes` gives DNS names, so units cannot restrict engines to the cluster's addresses",
            ("cluster", "nodes"),
            help="give literal IP addresses",
        )
    told: set[str] = set()
    for part in engine_parts(plan):
        if reaches_out(part) and part.service.name not in told:
            told.add(part.service.name)
            yield warning(
                "DGC605",
                f"engines of service `{part.service.name}` fetch their weights over the network, "
                "so units cannot restrict them to the cluster's addresses",
                ("services", part.service.name, "model"),
                help='give `weights: /path` on the nodes, or `env: {HF_HUB_OFFLINE: "1"}` with a filled cache',
            )


def _engines(emission: _Emission) -> Iterator[Artifact]:
    last: dict[str, EnginePart] = {}
    for part in emission.parts:
        view = engine_view(emission.plan, part, emission.host, earlier=last.get(part.node.name))
        last[part.node.name] = part
        path = f"{UNITS}/{engine_unit(part)}"
        text = emission.pack.text("engine-unit", view)
        _check_engine(path, text, view)
        yield emission.file(part.node.name, path, "engine-unit", text=text, address=part.replica.address)


def _check_scripts(emission: _Emission) -> Iterator[Artifact]:
    text = emission.pack.text("engine-check", emission.host)
    for node in sorted({part.node.name for part in emission.parts}):
        yield emission.file(
            node, emission.host.check_script(), "engine-check", text=text, address=f"node/{node}"
        )


def _proxies(emission: _Emission, service: ServicePlan) -> Outcome[list[Artifact]]:
    parts = {part.replica.address: part for part in emission.parts if part.serves}
    table = routing_table(emission.plan, service, lambda part: part.node.address or "", parts=parts)
    if table.value is None:
        return Outcome(None, table.diagnostics)
    artifacts = []
    for instance in service.proxy.instances:
        view = proxy_view(emission.plan, service, instance, host=emission.host)
        path = f"{UNITS}/{proxy_unit_of(service, instance)}"
        text = emission.pack.text("proxy-unit", view)
        _check_proxy(path, text, view)
        own = with_metrics(table.value, service, emission.plan.node(instance.node).address)
        routing = dump_table(own)
        expect(f"{service.name}/routing.json", "table", meant=own, read=load_table(routing))
        config = f"{emission.host.folder}/{service.name}/routing.json"
        artifacts += [
            emission.file(instance.node, path, "proxy-unit", text=text, address=instance.address),
            emission.file(instance.node, config, "routing", text=routing, address=f"{service.name}/routing"),
        ]
    return Outcome(artifacts, table.diagnostics)


def _read(path: str, text: str) -> Unit:
    try:
        return read_unit(text)
    except UnreadableUnitError as problem:
        raise ReadBackError(f"{path}: {problem}") from None


def _check_engine(path: str, text: str, view: EngineUnit) -> None:
    unit = _read(path, text)
    shell = ("/bin/sh",)
    expect(path, "ExecStart", meant=(view.command,), read=unit.commands("ExecStart"))
    expect(path, "ExecStartPre", meant=((*shell, *view.preflight),), read=unit.commands("ExecStartPre"))
    ready = ((*shell, *view.ready),) if view.ready else ()
    expect(path, "ExecStartPost", meant=ready, read=unit.commands("ExecStartPost"))
    expect(path, "Environment", meant=dict(view.environment), read=unit.environment())
    expect(
        path, "EnvironmentFile", meant=view.environment_files, read=unit.lines("Service", "EnvironmentFile")
    )
    _check_frame(path, unit, title=view.title, user=view.user)


def _check_proxy(path: str, text: str, view: ProxyUnit) -> None:
    unit = _read(path, text)
    expect(path, "ExecStart", meant=(view.command,), read=unit.commands("ExecStart"))
    expect(
        path, "EnvironmentFile", meant=view.environment_files, read=unit.lines("Service", "EnvironmentFile")
    )
    _check_frame(path, unit, title=view.title, user=view.user)


def _check_frame(path: str, unit: Unit, *, title: str, user: str) -> None:
    """No text opened a section or an assignment of its own."""
    sections = tuple(dict.fromkeys(section for section, _, _ in unit.assignments))
    expect(path, "sections", meant=("Unit", "Service", "Install"), read=sections)
    expect(path, "Description", meant=(f"disaggc {title}",), read=unit.lines("Unit", "Description"))
    expect(path, "User", meant=(user,), read=unit.lines("Service", "User"))
