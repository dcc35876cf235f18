"""Checks within one service, and of its names against the cluster: traffic, limits, proxy, fields without use."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from disaggc.diagnostics import Diagnostic, FieldPath, Label, Severity, error
from disaggc.spec.cluster import Cluster
from disaggc.spec.model import Service, ShapeChoices
from disaggc.spec.names_of_nodes import node_names
from disaggc.spec.near import nearest
from disaggc.spec.workload import Length, LengthHistogram, LengthQuantiles, WorkloadClass

_PERCENTILES = ("p50", "p90", "p99")


def service_findings(path: FieldPath, service: Service, cluster: Cluster) -> Iterator[Diagnostic]:
    """Every finding about one service, not yet placed."""
    for name, workload in service.workload.items():
        yield from _workload((*path, "workload", name), workload)
    for role in ("prefill", "decode", "colocated"):
        yield from _choices((*path, "constraints", role), getattr(service.constraints, role), cluster)
    yield from _spares((*path, "constraints"), service)
    yield from _proxy((*path, "proxy"), service, cluster)
    yield from _unused(path, service)
    nodes, most = service.guarantees.nodes, service.constraints.max_nodes
    if nodes is not None and most is not None and nodes > most:
        label = Label((*path, "constraints", "max_nodes"), "at most this many")
        message = f"`guarantees.nodes` is {nodes}, `constraints.max_nodes` is {most}"
        yield Diagnostic("DGC115", Severity.ERROR, message, (*path, "guarantees", "nodes"), labels=(label,))


def _workload(path: FieldPath, workload: WorkloadClass) -> Iterator[Diagnostic]:
    if workload.rate is None and workload.concurrency is None:
        yield Diagnostic(
            "DGC111", Severity.ERROR, f"class `{path[-1]}` has neither `rate` nor `concurrency`", path,
            help="add `rate: 2/s` for offered load, `concurrency: 64` for a fixed number in flight, or both",
            at_key=True,
        )  # fmt: skip
    yield from _length((*path, "input_tokens"), workload.input_tokens)
    yield from _length((*path, "output_tokens"), workload.output_tokens)
    yield from _arrivals(path, workload)
    for metric in ("ttft", "itl", "e2e"):
        bounds = [(f"{metric}_{p}", getattr(workload.objectives, f"{metric}_{p}")) for p in _PERCENTILES]
        given = [(name, bound) for name, bound in bounds if bound is not None]
        for (lower, low), (upper, high) in pairwise(given):
            if low > high:
                label = Label((*path, "objectives", upper), "this bound already implies a tighter one")
                message = f"`{lower}` is looser ({low:g} s) than `{upper}` ({high:g} s) and can never bind"
                yield Diagnostic(
                    "DGC115", Severity.ERROR, message, (*path, "objectives", lower), labels=(label,)
                )


def _arrivals(path: FieldPath, workload: WorkloadClass) -> Iterator[Diagnostic]:
    arrivals = workload.arrivals
    if arrivals is None:
        return
    here = (*path, "arrivals")
    if arrivals.cv is not None and arrivals.trace is not None:
        label = Label((*here, "cv"), "and this")
        yield Diagnostic(
            "DGC115",
            Severity.ERROR,
            "`cv` and `trace` exclude each other",
            (*here, "trace"),
            labels=(label,),
            at_key=True,
        )
    if arrivals.cv is None and arrivals.trace is None:
        yield Diagnostic(
            "DGC111", Severity.ERROR, "`arrivals` has neither `cv` nor `trace`", here, at_key=True
        )
    if workload.rate is None and workload.concurrency is not None:
        message = "`arrivals` is not used without `rate`: with `concurrency` alone a request follows the one before it"
        yield Diagnostic(
            "DGC116", Severity.ERROR, message, here, help="add `rate`, or remove `arrivals`", at_key=True
        )


def _length(path: FieldPath, length: Length) -> Iterator[Diagnostic]:
    match length:
        case LengthQuantiles():
            given = [
                (name, getattr(length, name)) for name in _PERCENTILES if getattr(length, name) is not None
            ]
            for (lower, low), (upper, high) in pairwise(given):
                if low > high:
                    label = Label((*path, upper), f"{high:g} tokens here")
                    message = f"`{lower}` ({low:g} tokens) lies above `{upper}` ({high:g} tokens)"
                    yield Diagnostic("DGC115", Severity.ERROR, message, (*path, lower), labels=(label,))
        case LengthHistogram():
            if not any(length.histogram.values()):
                yield error("DGC114", "every weight of `histogram` is zero", (*path, "histogram"))
        case _:
            return


def _choices(path: FieldPath, choices: ShapeChoices, cluster: Cluster) -> Iterator[Diagnostic]:
    known = set(cluster.nodes)
    for index, name in enumerate(choices.nodes or ()):
        if name not in known:
            near = nearest(name, known)
            hint = (
                f"did you mean `{near}`?"
                if near
                else f"there are {', '.join(f'`{k}`' for k in sorted(known))}"
            )
            yield error(
                "DGC114", f"the cluster has no node group `{name}`", (*path, "nodes", index), help=hint
            )
    for field in ("tp", "pp", "dp", "dcp", "accelerators", "nodes"):
        values = getattr(choices, field)
        if values is not None and not values:
            yield Diagnostic(
                "DGC114", Severity.ERROR, f"`{field}` is an empty list, which allows nothing", (*path, field),
                help="remove it to allow everything", at_key=True,
            )  # fmt: skip


def _spares(path: FieldPath, service: Service) -> Iterator[Diagnostic]:
    """An exact count of which as many may fail. Zero replicas of a role is a way to rule out its mode."""
    spare = service.constraints.spare_replicas
    for role in ("prefill", "decode", "colocated"):
        count = getattr(service.constraints, role).replicas
        if count and count <= spare:
            label = Label((*path, "spare_replicas"), f"so many may fail: {spare}")
            yield Diagnostic(
                "DGC115", Severity.ERROR,
                f"`{role}.replicas` is {count}, `spare_replicas` {spare} would leave none",
                (*path, role, "replicas"), labels=(label,),
                help=f"write `replicas: {spare + 1}` or more, or fewer `spare_replicas`",
            )  # fmt: skip


def _proxy(path: FieldPath, service: Service, cluster: Cluster) -> Iterator[Diagnostic]:
    nodes = service.proxy.nodes
    if nodes is None:
        return
    known = {name for group_name, group in cluster.nodes.items() for name in node_names(group_name, group)}
    for index, name in enumerate(nodes):
        if name not in known:
            near = nearest(name, known)
            hint = f"did you mean `{near}`?" if near else None
            yield error("DGC114", f"the cluster has no host `{name}`", (*path, "nodes", index), help=hint)
        if name in nodes[:index]:
            yield error("DGC115", f"host `{name}` stands twice in `proxy.nodes`", (*path, "nodes", index))
    if len(nodes) < service.proxy.replicas:
        message = f"`proxy.nodes` names {len(nodes)} hosts for {service.proxy.replicas} proxy replicas"
        yield Diagnostic("DGC115", Severity.ERROR, message, (*path, "nodes"), at_key=True)


def _unused(path: FieldPath, service: Service) -> Iterator[Diagnostic]:
    """Fields of P/D serving under `mode: colocated`, where nothing reads them."""
    if service.constraints.mode != "colocated":
        return
    places = [
        ("engine", "prefill", service.engine.model_fields_set),
        ("engine", "decode", service.engine.model_fields_set),
        ("engine", "connector", service.engine.model_fields_set),
        ("constraints", "prefill", service.constraints.model_fields_set),
    ]
    if "colocated" in service.constraints.model_fields_set:
        places.append(("constraints", "decode", service.constraints.model_fields_set))
    for part, field, given in places:
        if field in given:
            label = Label((*path, "constraints", "mode"), "this mode has no prefill and decode replicas")
            yield Diagnostic(
                "DGC116", Severity.ERROR, f"`{part}.{field}` is not used with `mode: colocated`", (*path, part, field),
                labels=(label,), help="remove it, or choose `mode: auto`", at_key=True,
            )  # fmt: skip
