"""What a plan claims its layout will do, predicted again from nothing but its counts, shapes and sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from disaggc import units
from disaggc.diagnostics import Diagnostic, error
from disaggc.ir.plan import Expectation, Pool, Role, ServicePlan
from disaggc.perf.expectation import expectation
from disaggc.perf.layout import Layout, LayoutPrediction, PoolLayout
from disaggc.perf.models import Models
from disaggc.perf.predict import predict
from disaggc.resolve.model import ResolvedService, ResolvedSpec

_NOISE = 1e-5
"""Plans keep six significant digits."""


def broken_claims(planned: ServicePlan, service: ResolvedService, models: Models) -> Iterator[Diagnostic]:
    """DGC543 where a claim differs from its recomputation, DGC544 where an objective does not hold."""
    path = ("services", service.name)
    layout = layout_of(planned, models.resolved)
    if layout is None:
        yield error("DGC543", f"`{planned.name}` has no layout that can be predicted", path)
        return
    seen = predict(models, service, layout)
    if seen.reasons:
        yield error("DGC543", f"`{planned.name}` cannot run: {seen.reasons[0]}", path)
        return
    for text in differences(planned.predicted, expectation(seen)):
        yield error("DGC543", f"`{planned.name}` claims {text}", path)
    if not planned.predicted.meets_objectives:
        yield error("DGC544", f"`{planned.name}` does not claim to meet its objectives", (*path, "workload"))
    for name, variant in _variants(service, models.resolved):
        here = seen if variant is service else predict(models, variant, layout)
        yield from _objectives(here, name, service=planned.name)


def layout_of(planned: ServicePlan, resolved: ResolvedSpec) -> Layout | None:
    """The counts of a plan as perf takes them; a flexible pool by its split."""
    pools: list[PoolLayout] = []
    for pool in planned.pools:
        if pool.role is Role.FLEXIBLE:
            if planned.flexible_ratio is None:
                return None
            split = planned.flexible_ratio
            pools.append(_pool(pool, resolved, role=Role.PREFILL, replicas=split.prefill))
            pools.append(_pool(pool, resolved, role=Role.DECODE, replicas=split.decode))
        else:
            pools.append(_pool(pool, resolved, role=pool.role, replicas=len(pool.replicas)))
    return Layout(planned.mode, tuple(pools))


def differences(claimed: Expectation, found: Expectation) -> Iterator[str]:
    """Every claim that is not what was found, by name."""
    said, true = _flat(claimed.model_dump(mode="json")), _flat(found.model_dump(mode="json"))
    for name in sorted({*said, *true}):
        one, other = said.get(name), true.get(name)
        if isinstance(one, float | int) and isinstance(other, float | int):
            if not math.isclose(one, other, rel_tol=_NOISE, abs_tol=1e-9):
                yield f"{name} {one:.6g}, recomputed it is {other:.6g}"
        elif one != other:
            yield f"{name} {one}, recomputed it is {other}"


def _pool(pool: Pool, resolved: ResolvedSpec, *, role: Role, replicas: int) -> PoolLayout:
    sequences = None if role is Role.PREFILL else pool.memory.sequences
    return PoolLayout(role, resolved.group(pool.group), pool.shape, replicas, sequences)


def _flat(value: object, name: str = "") -> dict[str, object]:
    if not isinstance(value, dict):
        return {name: value}
    return {
        k: v
        for key, part in value.items()
        for k, v in _flat(part, f"{name}.{key}" if name else str(key)).items()
    }


def _variants(service: ResolvedService, resolved: ResolvedSpec) -> Iterator[tuple[str, ResolvedService]]:
    yield "", service
    for scenario in resolved.scenarios:
        for variant in scenario.services:
            if variant.name == service.name:
                yield scenario.name, variant


def _objectives(seen: LayoutPrediction, scenario: str, *, service: str) -> Iterator[Diagnostic]:
    where = f" in scenario `{scenario}`" if scenario else ""
    for violation in seen.violations:
        bound = violation.bound
        field = f"{bound.metric}_p{bound.percentile}"
        text = (
            f"`{field}` of `{violation.name}` is {units.format_duration(violation.value_s)}{where}, "
            f"{units.format_duration(bound.limit_s)} allowed"
        )
        path = ("services", service, "workload", violation.name, "objectives", field)
        yield error("DGC544", text, path)
