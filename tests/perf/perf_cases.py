"""Resolved specs built by hand from catalog facts, so that perf is tested without the stages before it."""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.engines import EngineSnapshot
from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.load import Catalog, load_catalog
from disaggc.ir.plan import Role, Shape
from disaggc.perf.layout import Layout, PoolLayout
from disaggc.perf.models import Models
from disaggc.resolve.model import (
    Bound,
    CalibrationSource,
    ClassLoad,
    Lengths,
    NodeGroupFacts,
    NodeRef,
    ResolvedService,
    ResolvedSpec,
    RoleChoices,
)
from disaggc.spec.model import Service, Spec
from disaggc.units import Price

CATALOG: Catalog = load_catalog()
_ENGINE = {"vllm": "0.33.0", "command": "/opt/vllm/bin/vllm"}
_ANY = RoleChoices(None, None, None, None, (), None)
_SNAPSHOT = EngineSnapshot(
    (0, 33, 0), exact=True, flags={}, env_names=frozenset(), connectors={}, source="test"
)


def exact(tokens: float) -> Lengths:
    return Lengths(tokens, tokens, tokens, tokens, 0.0)


def load(
    name: str = "main",
    *,
    isl: float | Lengths = 1024,
    osl: float | Lengths = 1024,
    rate: float | None = None,
    concurrency: int | None = None,
    arrival_cv: float = 1.0,
    prefix_hit: float = 0.0,
    bounds: tuple[Bound, ...] = (),
) -> ClassLoad:
    return ClassLoad(
        name,
        isl if isinstance(isl, Lengths) else exact(isl),
        osl if isinstance(osl, Lengths) else exact(osl),
        rate,
        concurrency,
        arrival_cv,
        prefix_hit,
        bounds,
        0,
    )


def model(name: str) -> ModelFacts:
    found = CATALOG.model(name)
    assert found is not None, name
    return found


def service(
    facts: ModelFacts | str,
    *loads: ClassLoad,
    settings: dict[str, int] | None = None,
    max_model_len: int = 16384,
    utilisation: float = 0.92,
    speculative: dict[str, object] | None = None,
    kv_bytes: float = 2.0,
    connector: dict[str, object] | None = None,
) -> ResolvedService:
    facts = model(facts) if isinstance(facts, str) else facts
    given = Service.model_validate(
        {
            "model": {"id": facts.id},
            "engine": {**_ENGINE, "connector": connector or {}},
            "workload": {"main": {"input_tokens": 1, "output_tokens": 1, "concurrency": 1}},
            "speculative": speculative,
        }
    )
    flags = dict(settings or {})
    return ResolvedService(
        name="chat",
        given=given,
        model=facts,
        model_path=facts.id,
        served_name=facts.id,
        max_model_len=max_model_len,
        snapshot=_SNAPSHOT,
        settings={"prefill": flags, "decode": flags, "colocated": flags},
        classes=loads or (load(concurrency=64),),
        prefill=_ANY,
        decode=_ANY,
        colocated=_ANY,
        mode="auto",
        kv_dtype="auto",
        kv_bytes_per_token_full=facts.kv_elements_per_token_full * kv_bytes + facts.kv_extra_bytes_per_token,
        kv_bytes_per_token_sliding=facts.kv_elements_per_token_sliding * kv_bytes,
        utilisation=utilisation,
    )


def nodes(
    accelerator: str,
    *,
    count: int = 5,
    per_node: int = 8,
    nics: int | None = None,
    gbit: float = 200,
    price: float | None = 24.0,
    name: str = "gpu",
) -> NodeGroupFacts:
    facts = CATALOG.accelerator(accelerator)
    assert facts is not None, accelerator
    return NodeGroupFacts(
        name=name,
        accelerator=facts,
        per_node=per_node,
        nics=per_node if nics is None else nics,
        nic_devices=(),
        nic_bytes_per_s=gbit * 1e9 / 8,
        price=None if price is None else Price(price, "USD"),
        cpu_memory_bytes=None,
        nodes=tuple(NodeRef(f"{name}-{i}", None, None, pinned=False) for i in range(count)),
    )


def resolved(
    *services: ResolvedService,
    groups: tuple[NodeGroupFacts, ...],
    fabric: str = "infiniband",
    calibration: str | None = None,
) -> ResolvedSpec:
    network = CATALOG.fabric(fabric)
    assert network is not None, fabric
    spec = Spec.model_validate(
        {
            "version": 1,
            "cluster": {
                "fabric": {"type": "infiniband", "speed_per_nic": "200Gbit"},
                "nodes": {"gpu": {"count": 1, "accelerator": {"type": "h100-sxm", "per_node": 8}}},
            },
            "services": {"chat": services[0].given.model_dump(exclude_none=True)},
        },
        strict=False,
    )
    return ResolvedSpec(
        spec=spec,
        services=services,
        scenarios=(),
        groups=groups,
        fabric=network,
        target=None,
        calibration=None if calibration is None else CalibrationSource("calibration.yaml", calibration),
        spec_digest="",
        catalog_digest="",
    )


@dataclass(frozen=True)
class Bench:
    """A service on a node group with its models."""

    models: Models
    service: ResolvedService
    group: NodeGroupFacts
    shape: Shape

    def pd(self, prefill: int, decode: int, shape: Shape | None = None) -> Layout:
        used = shape or self.shape
        return Layout(
            "disaggregated",
            (
                PoolLayout(Role.PREFILL, self.group, used, prefill),
                PoolLayout(Role.DECODE, self.group, used, decode),
            ),
        )

    def colocated(self, replicas: int, shape: Shape | None = None) -> Layout:
        return Layout("colocated", (PoolLayout(Role.COLOCATED, self.group, shape or self.shape, replicas),))


def bench(
    facts: str,
    group: NodeGroupFacts,
    shape: Shape,
    *loads: ClassLoad,
    calibration: str | None = None,
    fabric: str = "infiniband",
    **options: object,
) -> Bench:
    one = service(facts, *loads, **options)  # type: ignore[arg-type]
    built = Models.of(resolved(one, groups=(group,), calibration=calibration, fabric=fabric))
    assert built.value is not None, built.diagnostics
    return Bench(built.value, one, group, shape)


def moreh(isl: float, osl: float, con: int, rate: float | None, *, shape: Shape | None = None) -> Bench:
    """The five-node MI300X cluster with one replica per node."""
    used = shape or Shape(tp=8)
    return bench(
        "deepseek-ai/DeepSeek-R1", nodes("mi300x"), used, load(isl=isl, osl=osl, rate=rate, concurrency=con)
    )
