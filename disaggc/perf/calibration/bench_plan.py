"""A plan -> the bench runs that calibrate the engines in it, with the time they take. Knows no files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from disaggc.ir.plan import DeploymentPlan, Role, ServicePlan, Shape
from disaggc.perf.calibration.schedule import KINDS, SEQUENCES, Bench, BenchRun, schedule
from disaggc.perf.engine_model import EngineModel
from disaggc.perf.estimate import Estimate
from disaggc.perf.models import Models
from disaggc.resolve.model import NodeGroupFacts, ResolvedService

_START = Estimate(30.0, 15.0, 60.0)
"""Seconds until a bench client has loaded its tokenizer, made its prompts and sent the first."""
_APART = 8
"""Output tokens of a P/D run whose decode engine is another one: too few to be read as that engine's token times."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """One run. time: seconds from its command to its result."""

    run: BenchRun
    command: str
    result_file: str
    time: Estimate


@dataclass(frozen=True, slots=True)
class EngineBench:
    """The runs of one kind of engine of a service. decode: the other end of its P/D runs, where it has any."""

    service: str
    bench: Bench
    accelerator: str
    shape: Shape
    roles: tuple[Role, ...]
    decode: Shape | None
    runs: tuple[TimedRun, ...]

    @property
    def time(self) -> Estimate:
        """Of all runs one after the other."""
        total = Estimate(0.0, 0.0, 0.0)
        for timed in self.runs:
            total = total.plus(timed.time)
        return total


def bench_plan(models: Models, plan: DeploymentPlan) -> tuple[EngineBench, ...]:
    """Every kind of engine that the plan runs, each with the runs that its roles need."""
    services = {service.name: service for service in models.resolved.services}
    return tuple(
        bench for planned in plan.services for bench in _of_service(models, services[planned.name], planned)
    )


def _of_service(models: Models, service: ResolvedService, planned: ServicePlan) -> Iterator[EngineBench]:
    decode = next((pool.shape for pool in planned.pools if pool.role is Role.DECODE), None)
    roles: dict[tuple[str, Shape], list[Role]] = {}
    groups: dict[tuple[str, Shape], NodeGroupFacts] = {}
    for pool in planned.pools:
        key = (pool.accelerator, pool.shape)
        roles.setdefault(key, []).append(pool.role)
        node = pool.replicas[0].slots[0].node
        groups.setdefault(key, next(g for g in models.resolved.groups if node in {n.name for n in g.nodes}))
    for (accelerator, shape), found in roles.items():
        bench = Bench(
            name=re.sub(r"[^a-z0-9]+", "-", f"{service.name} {accelerator} {shape}".lower()),
            model=service.model.id,
            served=service.served_name,
            metadata=(
                ("disaggc_model", service.model.id),
                ("disaggc_accelerator", accelerator),
                ("disaggc_shape", str(shape).replace(" ", ",")),
                ("disaggc_replicas", "1"),
                ("disaggc_roles", ",".join(role.value for role in dict.fromkeys(found))),
                ("disaggc_max_model_len", str(service.max_model_len)),
                *((("disaggc_kv_dtype", service.kv_dtype),) if service.kv_dtype != "auto" else ()),
            ),
        )
        engine = models.engine(service, groups[accelerator, shape], shape)
        kinds = {kind for role in found for kind in KINDS[role]}
        runs = tuple(
            TimedRun(run, run.command(bench), run.result_file(bench.name), _time(engine, run))
            for run in (
                replace(run, osl=_APART) if run.kind == "pd" and decode != shape else run
                for run in schedule(service.max_model_len, SEQUENCES)
                if run.kind in kinds
            )
        )
        ends = decode if "pd" in kinds else None
        yield EngineBench(service.name, bench, accelerator, shape, tuple(dict.fromkeys(found)), ends, runs)


def _time(engine: EngineModel, run: BenchRun) -> Estimate:
    """Prompts one after the other, then all tokens of every wave at the pace of a full batch."""
    prompts = engine.prefill_time(run.isl, run.isl**2).scaled(run.prompts)
    waves = run.prompts / run.concurrency
    step = engine.decode_step(run.concurrency, run.concurrency * (run.isl + run.osl / 2))
    return replace(_START.plus(prompts).plus(step.scaled(waves * run.osl)), terms=())
