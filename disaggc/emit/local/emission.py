"""Plan to the files of one machine: findings first, then the view, the text, and the text read back."""

from __future__ import annotations

import configparser
import shlex
from collections.abc import Callable, Iterator, Mapping

from disaggc.diagnostics.model import Diagnostic, Outcome, error, has_errors
from disaggc.emit import free_text
from disaggc.emit.artifacts import Artifact, ArtifactSet
from disaggc.emit.engine_part import engine_parts
from disaggc.emit.local.view import Configuration, programs, scale_of, timing_path
from disaggc.emit.meant import expect
from disaggc.emit.pack import TargetPack
from disaggc.emit.quoting import UnsafeTextError, ini_word
from disaggc.emit.routing_file import routing_table
from disaggc.emit.stamp import stamp_of
from disaggc.ir.plan import DeploymentPlan
from disaggc.ir.stack import Stack, dump_stack, load_stack
from disaggc.resolve.hardware import LOOPBACK
from disaggc.routing.limits import Listen, Timeouts
from disaggc.routing.table import RoutingTable, dump_table, load_table
from disaggc.spec.model import LocalTarget

CONFIGURATION = "supervisord.conf"
STACK = "stack.json"
LEAST_LEASE_S = 0.2


def _executable(text: str) -> None:
    if "/" in text:
        free_text.absolute_path(text)
    if "=" in text:
        raise UnsafeTextError("holds a `=`, so it would be taken for a variable")
    free_text.no_flag(text)
    ini_word(text)


CHECKS: Mapping[free_text.Kind, Callable[[str], object]] = {
    "argument": ini_word,
    "positional": free_text.no_flag,
    "weights": ini_word,
    "variable": ini_word,
    "variable-name": free_text.variable_name,
    "executable": _executable,
    "key-file": free_text.absolute_path,
    "name": free_text.plain_name,
    "address": free_text.host_address,
}


def emit_local(
    plan: DeploymentPlan,
    settings: LocalTarget,
    pack: TargetPack,
    *,
    timings: Mapping[str, str],
) -> Outcome[ArtifactSet]:
    """All files of the local target. timings: step-time tables by pool address. Errors: DGC602, DGC603."""
    findings = (*_unfit(plan, settings), *free_text.refused(plan, CHECKS))
    if has_errors(findings):
        return Outcome(None, findings)
    view = Configuration(stamp_of(plan).line, tuple(programs(plan, settings, timings)))
    artifacts = [_configuration(view, pack), _stack(view, pack)]
    if settings.engine == "sim":
        rule = pack.rule("timing")
        artifacts += (
            Artifact(timing_path(address), text, pack.mode("timing"), address, rule.on_change)
            for address, text in timings.items()
        )
    parts = {part.replica.address: part for part in engine_parts(plan) if part.serves}
    for service in plan.services:
        table = routing_table(plan, service, lambda part: part.node.address or "", parts=parts)
        findings = (*findings, *table.diagnostics)
        if table.value is None:
            continue
        own = _scaled(_on_loopback(table.value), scale_of(settings))
        text = dump_table(own)
        expect(f"{service.name}/routing.json", "table", meant=own, read=load_table(text))
        rule = pack.rule("routing")
        path = f"{service.name}/routing.json"
        artifacts.append(
            Artifact(path, text, pack.mode("routing"), f"{service.name}/routing", rule.on_change)
        )
    if has_errors(findings):
        return Outcome(None, findings)
    return Outcome(ArtifactSet("local", tuple(sorted(artifacts, key=lambda a: a.path))), findings)


def _unfit(plan: DeploymentPlan, settings: LocalTarget) -> Iterator[Diagnostic]:
    for node in plan.nodes:
        if node.address != LOOPBACK:
            yield error(
                "DGC602",
                f"the plan places on {node.name} at {node.address}, target local on this machine alone",
                ("cluster", "nodes", node.group),
                help="compile the spec anew with `--target local`",
            )
    if settings.time_scale is not None and settings.engine == "vllm":
        yield error(
            "DGC602",
            "`targets.local.time_scale` is for doubles, `engine: vllm` runs in real time",
            ("targets", "local", "time_scale"),
            help="write `engine: sim`, or leave `time_scale` out",
        )
    for service in plan.services:
        at = ("services", service.name)
        for pool in service.pools:
            if settings.engine == "vllm" and any(len(replica.slots) > 1 for replica in pool.replicas):
                yield error(
                    "DGC602",
                    f"pool `{pool.address}` has replicas on {len(pool.replicas[0].slots)} nodes ({pool.shape}), "
                    "target local has one",
                    (*at, "constraints"),
                    help="allow only shapes that fit one node, or write `targets: {local: {engine: sim}}`",
                )


def _stack(view: Configuration, pack: TargetPack) -> Artifact:
    stack = Stack(programs=tuple(program.entry for program in view.programs))
    text = dump_stack(stack)
    expect(STACK, "programs", meant=stack, read=load_stack(text))
    return Artifact(STACK, text, pack.mode("stack"), "local/stack", pack.rule("stack").on_change)


def _configuration(view: Configuration, pack: TargetPack) -> Artifact:
    text = pack.text("supervisord", view)
    read = _reader(text)
    frame = ("supervisord", "unix_http_server", "supervisorctl", "rpcinterface:supervisor")
    meant = (*frame, *(f"program:{program.name}" for program in view.programs))
    expect(CONFIGURATION, "sections", meant=meant, read=tuple(read.sections()))
    for program in view.programs:
        command = read.get(f"program:{program.name}", "command")
        words = tuple(shlex.split(command % {}))
        expect(CONFIGURATION, f"command of {program.name}", meant=program.words, read=words)
    rule = pack.rule("supervisord")
    return Artifact(CONFIGURATION, text, pack.mode("supervisord"), "local/supervisord", rule.on_change)


def _reader(text: str) -> configparser.RawConfigParser:
    """The file as supervisord reads it."""
    parser = configparser.RawConfigParser(inline_comment_prefixes=(";", "#"), strict=True)
    parser.read_string(text)
    return parser


def _on_loopback(table: RoutingTable) -> RoutingTable:
    """Clients of a plan that is being tried out are on the same machine; its proxies become workers of one."""
    listen = Listen.model_validate({**table.listen.model_dump(), "host": LOOPBACK})
    return table.model_copy(update={"listen": listen, "proxies": 1})


def _scaled(table: RoutingTable, scale: float) -> RoutingTable:
    """Leases run out `scale` times sooner in the doubles, so KV has to be asked for that much sooner."""
    if scale == 1:
        return table
    lease = max(LEAST_LEASE_S, table.lease_s / scale)
    share = table.timeouts.handoff_s / table.lease_s
    timeouts = Timeouts.model_validate({**table.timeouts.model_dump(), "handoff_s": lease * share})
    return table.model_copy(update={"lease_s": lease, "timeouts": timeouts})
