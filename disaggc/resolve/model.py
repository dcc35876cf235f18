"""The resolved spec: frozen dataclasses in base units, every reference bound. Knows no solver and no target text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from disaggc.catalog.engines import EngineSnapshot
from disaggc.catalog.facts import AcceleratorFacts, FabricFacts, ModelFacts
from disaggc.ir.plan import Role
from disaggc.spec.model import Service, SettingValue, Spec
from disaggc.units import Price

Mode = Literal["auto", "disaggregated", "colocated", "flexible"]
TargetKind = Literal["kubernetes", "systemd", "compose", "local"]


PartName = Literal["prefill", "decode", "colocated"]
"""Parts of a service whose shapes and engine settings the spec may state apart."""


def part_of(role: Role) -> PartName:
    """Whose settings reach a role; a flexible pool's engines are neither prefill nor decode."""
    match role:
        case Role.PREFILL:
            return "prefill"
        case Role.DECODE:
            return "decode"
        case Role.COLOCATED | Role.FLEXIBLE:
            return "colocated"


@dataclass(frozen=True, slots=True)
class Lengths:
    """A token-length distribution. mean, p50, p90, p99 in tokens; cv = standard deviation / mean."""

    mean: float
    p50: float
    p90: float
    p99: float
    cv: float


@dataclass(frozen=True, slots=True)
class Bound:
    """One objective: `percentile` (50, 90, 99) of `metric` must not exceed `limit_s`."""

    metric: Literal["ttft", "itl", "e2e"]
    percentile: Literal[50, 90, 99]
    limit_s: float


@dataclass(frozen=True, slots=True)
class ClassLoad:
    """One workload class. rate in requests/s (None = closed loop), concurrency = cap (None = open loop).

    At least one of the two is set. arrival_cv: coefficient of variation between arrivals. prefix_hit: share of prompt
    tokens that need no prefill.
    """

    name: str
    isl: Lengths
    osl: Lengths
    rate: float | None
    concurrency: int | None
    arrival_cv: float
    prefix_hit: float
    bounds: tuple[Bound, ...]
    priority: int


@dataclass(frozen=True, slots=True)
class NodeRef:
    """One node; address None where the spec gives only a count; pinned where the spec names the host."""

    name: str
    address: str | None
    rack: str | None
    pinned: bool


@dataclass(frozen=True, slots=True)
class NumaFacts:
    """One NUMA domain: accelerator indices and processors (`0-47,96-143`) that are near each other."""

    devices: tuple[int, ...]
    cpus: str


@dataclass(frozen=True, slots=True)
class NodeGroupFacts:
    """Identical nodes with their facts. nic_bytes_per_s: line rate of one NIC, one direction."""

    name: str
    accelerator: AcceleratorFacts
    per_node: int
    nics: int
    nic_devices: tuple[str, ...]
    nic_bytes_per_s: float
    price: Price | None
    cpu_memory_bytes: float | None
    nodes: tuple[NodeRef, ...]
    numa: tuple[NumaFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleChoices:
    """Shapes the solver may use for one role; None = the compiler's choice. dcp: (1,) unless the user opts in."""

    tp: tuple[int, ...] | None
    pp: tuple[int, ...] | None
    dp: tuple[int, ...] | None
    expert_parallel: bool | None
    groups: tuple[str, ...]
    """Node groups this role may use, after `accelerators` and `nodes` were applied."""
    replicas: int | None
    dcp: tuple[int, ...] = (1,)


@dataclass(frozen=True, slots=True)
class ResolvedService:
    """One service with its facts. settings_*: user flags (without dashes) merged for the role, later wins."""

    name: str
    given: Service
    model: ModelFacts
    model_path: str
    served_name: str
    max_model_len: int
    snapshot: EngineSnapshot
    settings: Mapping[PartName, Mapping[str, SettingValue]]
    classes: tuple[ClassLoad, ...]
    prefill: RoleChoices
    decode: RoleChoices
    colocated: RoleChoices
    mode: Mode
    kv_dtype: str
    """`--kv-cache-dtype` as the user set it, else "auto"."""
    kv_bytes_per_token_full: float
    """Bytes per token in full-attention layers and indexers, whole model, at kv_dtype."""
    kv_bytes_per_token_sliding: float
    """Bytes per token in sliding-window layers, whole model."""
    utilisation: float
    """`--gpu-memory-utilization`."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """The same services under other traffic; the layout must hold here too."""

    name: str
    services: tuple[ResolvedService, ...]


@dataclass(frozen=True, slots=True)
class CalibrationSource:
    """The calibration file as read; perf interprets it."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class ResolvedSpec:
    """Everything the later stages need; pure data."""

    spec: Spec
    services: tuple[ResolvedService, ...]
    scenarios: tuple[Scenario, ...]
    groups: tuple[NodeGroupFacts, ...]
    fabric: FabricFacts
    target: TargetKind | None
    calibration: CalibrationSource | None
    spec_digest: str
    catalog_digest: str

    def group(self, name: str) -> NodeGroupFacts:
        """The node group of that name."""
        return next(group for group in self.groups if group.name == name)
