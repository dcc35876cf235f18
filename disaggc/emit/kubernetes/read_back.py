"""Reads a rendered manifest and compares it with its view; follows Kubernetes' own way of expanding commands."""

from __future__ import annotations

from collections.abc import Iterable

from disaggc.emit.kubernetes.objects import (
    Account,
    Budget,
    EndpointPool,
    Meta,
    Pairs,
    Policy,
    PoolService,
    ProxyDeployment,
    ProxyEntrance,
    RoutingMap,
)
from disaggc.emit.kubernetes.pods import EnginePod, EngineSet
from disaggc.emit.meant import ReadBackError, expect
from disaggc.emit.reading.documents import UnreadableDocumentError, at, read_documents
from disaggc.routing.table import load_table
from disaggc.routing.text import TableError

_TOP = {"apiVersion", "kind", "metadata", "spec"}


def check_manifest(path: str, text: str, view: object) -> None:
    """Raise unless the file says what the view means, and holds nothing else at its top."""
    try:
        (document,) = read_documents(text)
    except (UnreadableDocumentError, ValueError) as problem:
        raise ReadBackError(f"{path}: {problem}") from None
    keys = set(document) if isinstance(document, dict) else set()
    spec = at(document, "spec")
    top = _TOP
    match view:
        case EngineSet():
            _check_engines(path, document, view)
        case ProxyDeployment():
            expect(path, "labels", meant=dict(view.labels), read=at(spec, "template", "metadata", "labels"))
            _check_proxy(path, at(spec, "template", "spec"), view)
            _selector(path, at(spec, "selector", "matchLabels"), view.selector)
        case PoolService() | ProxyEntrance():
            _selector(path, at(spec, "selector"), view.selector)
        case Budget() | EndpointPool():
            _selector(path, at(spec, "selector", "matchLabels"), view.selector)
        case Policy():
            _selector(path, at(spec, "podSelector", "matchLabels"), view.selector)
            expect(path, "policyTypes", meant=list(view.types), read=at(spec, "policyTypes"))
            expect(path, "ingress", meant=_plain(view.ingress), read=at(spec, "ingress") or [])
            expect(path, "egress", meant=_plain(view.egress), read=at(spec, "egress") or [])
        case RoutingMap():
            top = {"apiVersion", "kind", "metadata", "data"}
            _check_table(path, at(document, "data", "routing.json"), view.table)
        case Account():
            top = {"apiVersion", "kind", "metadata", "automountServiceAccountToken"}
        case _:
            raise ReadBackError(f"{path}: nothing is known of a {type(view).__name__}")
    expect(path, "keys", meant=top, read=keys)
    _check_meta(path, at(document, "metadata"), view.meta)


def _check_meta(path: str, metadata: object, meta: Meta) -> None:
    expect(path, "metadata.name", meant=meta.name, read=at(metadata, "name"))
    expect(path, "metadata.namespace", meant=meta.namespace, read=at(metadata, "namespace"))
    expect(path, "metadata.labels", meant=dict(meta.labels), read=at(metadata, "labels"))
    expect(path, "revision", meant=meta.revision, read=at(metadata, "annotations", "disaggc.dev/revision"))


def _selector(path: str, read: object, selector: Pairs) -> None:
    expect(path, "selector", meant=dict(selector), read=read)


def _check_engines(path: str, document: object, view: EngineSet) -> None:
    if view.worker is None:
        template = at(document, "spec", "template")
        _selector(path, at(document, "spec", "selector", "matchLabels"), view.selector)
        _check_pod(path, template, view.pod)
        return
    group = at(document, "spec", "leaderWorkerTemplate")
    expect(path, "size", meant=view.size, read=at(group, "size"))
    _check_pod(path, at(group, "leaderTemplate"), view.pod)
    _check_pod(path, at(group, "workerTemplate"), view.worker)


def _check_pod(path: str, template: object, pod: EnginePod) -> None:
    spec = at(template, "spec")
    container = at(spec, "containers", 0)
    expect(path, "pod labels", meant=dict(pod.labels), read=at(template, "metadata", "labels"))
    expect(path, "image", meant=pod.image, read=at(container, "image"))
    expect(path, "command", meant=list(pod.command), read=at(container, "command"))
    expect(path, "args", meant=list(pod.args), read=at(container, "args"))
    expect(path, "env", meant=_plain(pod.env), read=at(container, "env"))
    for bound in ("requests", "limits"):
        expect(path, bound, meant=dict(pod.resources), read=at(container, "resources", bound))
    expect(path, "nodeSelector", meant=pod.node_selector, read=at(spec, "nodeSelector"))
    expect(path, "affinity", meant=pod.affinity, read=at(spec, "affinity"))
    mounts = at(container, "volumeMounts")
    paths = (
        [at(m, "mountPath") for m in mounts if at(m, "name") == "weights"] if isinstance(mounts, list) else []
    )
    expect(path, "weights", meant=[pod.weights] if pod.weights else [], read=paths)


def _check_proxy(path: str, spec: object, view: ProxyDeployment) -> None:
    container = at(spec, "containers", 0)
    expect(path, "image", meant=view.image, read=at(container, "image"))
    expect(path, "env", meant=_plain(view.env), read=at(container, "env") or [])
    expect(path, "affinity", meant=view.affinity, read=at(spec, "affinity"))


def _check_table(path: str, read: object, table: str) -> None:
    try:
        found = load_table(read) if isinstance(read, str) else None
    except TableError as problem:
        raise ReadBackError(f"{path}: {problem}") from None
    expect(path, "routing.json", meant=load_table(table), read=found)


def _plain(values: Iterable[object]) -> list[object]:
    return list(values)
