"""One service with its references bound: model, engine snapshot, traffic, and the node groups each role may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from disaggc.catalog.engines import EngineSnapshot
from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.load import Catalog
from disaggc.catalog.model_config import read_model_config
from disaggc.catalog.sizing import kv_bytes_per_token
from disaggc.diagnostics import Diagnostic, FieldPath, Outcome, Severity, error
from disaggc.resolve.engine_settings import (
    kv_cache_dtype,
    max_model_len,
    merged_settings,
    utilisation,
)
from disaggc.resolve.model import ClassLoad, NodeGroupFacts, ResolvedService, RoleChoices
from disaggc.resolve.traffic import TraceFiles, resolve_classes
from disaggc.spec.files import Reader, Unreadable, decode
from disaggc.spec.model import Model, Service, ShapeChoices
from disaggc.spec.near import nearest

T = TypeVar("T")
CONFIG_LIMIT = 5 * 2**20
"""Largest config.json that is read, in bytes; real ones have 2 kB."""


@dataclass(slots=True)
class Binder:
    """Binds the services of one spec. locate: field path and text -> path of a file beside the place that says it."""

    catalog: Catalog
    groups: Sequence[NodeGroupFacts]
    read: Reader
    locate: Callable[[FieldPath, str], Path]
    traces: TraceFiles
    findings: list[Diagnostic] = field(default_factory=list)

    def bind(
        self, name: str, given: Service, variants: Mapping[str, Service]
    ) -> list[ResolvedService] | None:
        """The service and its form in every scenario, in that order; None where a reference is unknown.

        The engines are started once, so the longest context of all scenarios decides `max_model_len` of all.
        """
        path: FieldPath = ("services", name)
        model = self._model(given.model, (*path, "model"))
        snapshot = self._snapshot(given.engine.vllm, (*path, "engine", "vllm"))
        self._images(given, (*path, "engine", "images"))
        loads = [
            resolve_classes(service.workload, (*path, "workload"), self.traces)
            for service in (given, *variants.values())
        ]
        choices = {role: self._choices(role, given, path) for role in ("prefill", "decode", "colocated")}
        known = [load for load in loads if load is not None]
        if model is None or snapshot is None or len(known) < len(loads):
            return None
        first = _service((name, given), (model, snapshot), (known, choices))
        return [
            first,
            *(replace(first, given=s, classes=c) for s, c in zip(variants.values(), known[1:], strict=True)),
        ]

    def _model(self, given: Model, path: FieldPath) -> ModelFacts | None:
        if given.config is not None:
            return self._configured(given.config, given.id, (*path, "config"))
        known = self.catalog.model(given.id)
        if known is None:
            near = nearest(given.id, self.catalog.model_ids)
            meant = f"did you mean `{near}`? else " if near else ""
            help_text = f"{meant}add `config: ./config.json`, the model's own file"
            self.findings.append(
                error("DGC202", f"the catalog has no model `{given.id}`", (*path, "id"), help=help_text)
            )
        return known

    def _configured(self, name: str, model_id: str, path: FieldPath) -> ModelFacts | None:
        content = self.read(self.locate(path, name), CONFIG_LIMIT)
        text = decode(content) if isinstance(content, bytes) else content
        if isinstance(text, Unreadable):
            self.findings.append(error("DGC203", f"`{name[:80]}`: {text.message}", path, help=text.help))
            return None
        return self._taken(read_model_config(text, name, model_id), path)

    def _snapshot(self, version: str, path: FieldPath) -> EngineSnapshot | None:
        return self._taken(self.catalog.engine(version), path)

    def _taken(self, outcome: Outcome[T], path: FieldPath) -> T | None:
        """The value of a catalog's answer; what it says is placed at the field that asked."""
        self.findings.extend(replace(finding, path=path) for finding in outcome.diagnostics)
        return outcome.value

    def _images(self, given: Service, path: FieldPath) -> None:
        vendors = {group.accelerator.vendor for group in self.groups}
        for vendor in given.engine.images:
            if vendor not in vendors:
                message = f"no node has an accelerator of `{vendor}`, its image is not used"
                self.findings.append(
                    Diagnostic(
                        "DGC116", Severity.ERROR, message, (*path, vendor), help="remove it", at_key=True
                    )
                )

    def _choices(self, role: str, given: Service, path: FieldPath) -> RoleChoices:
        constraints = given.constraints
        stated = "decode" if role == "colocated" and "colocated" not in constraints.model_fields_set else role
        choices: ShapeChoices = getattr(constraints, stated)
        where = (*path, "constraints", stated)
        types = self._types(choices, (*where, "accelerators"))
        groups = tuple(
            group.name
            for group in self.groups
            if (choices.nodes is None or group.name in choices.nodes)
            and (types is None or group.accelerator.id in types)
        )
        if not groups:
            message = f"`{stated}` allows no node group: `accelerators` and `nodes` exclude each other"
            self._say(Diagnostic("DGC115", Severity.ERROR, message, where, at_key=True))
        return RoleChoices(
            choices.tp, choices.pp, choices.dp, choices.expert_parallel, groups, choices.replicas,
            choices.dcp or (1,),
        )  # fmt: skip

    def _types(self, choices: ShapeChoices, path: FieldPath) -> frozenset[str] | None:
        """Accelerator ids a role may use, aliases bound; None = any. One that no node has is an error."""
        if choices.accelerators is None:
            return None
        known = {group.accelerator.id for group in self.groups}
        types: set[str] = set()
        for index, name in enumerate(choices.accelerators):
            facts = self.catalog.accelerator(name)
            bound = name if name in known or facts is None else facts.id
            types.add(bound)
            if bound not in known:
                near = nearest(name, known)
                hint = (
                    f"did you mean `{near}`?"
                    if near
                    else f"there are {', '.join(f'`{k}`' for k in sorted(known))}"
                )
                self._say(
                    error("DGC114", f"the cluster has no accelerator `{name}`", (*path, index), help=hint)
                )
        return frozenset(types) if types <= known else None

    def _say(self, finding: Diagnostic) -> None:
        """Once: colocated replicas share the limits of decode."""
        if finding not in self.findings:
            self.findings.append(finding)


def _service(
    named: tuple[str, Service],
    facts: tuple[ModelFacts, EngineSnapshot],
    derived: tuple[list[tuple[ClassLoad, ...]], Mapping[str, RoleChoices]],
) -> ResolvedService:
    (name, given), (model, snapshot), (loads, choices) = named, facts, derived
    settings = merged_settings(given.engine, snapshot)
    common = settings["colocated"]
    dtype = kv_cache_dtype(common)
    kv_full, kv_sliding = kv_bytes_per_token(model, dtype)
    return ResolvedService(
        name=name,
        given=given,
        model=model,
        model_path=given.model.weights or given.model.id,
        served_name=given.model.served_name or given.model.id,
        max_model_len=max_model_len(common, model, [load for classes in loads for load in classes]),
        snapshot=snapshot,
        settings=settings,
        classes=loads[0],
        prefill=choices["prefill"],
        decode=choices["decode"],
        colocated=choices["colocated"],
        mode=given.constraints.mode,
        kv_dtype=dtype,
        kv_bytes_per_token_full=kv_full,
        kv_bytes_per_token_sliding=kv_sliding,
        utilisation=utilisation(common, snapshot),
    )
