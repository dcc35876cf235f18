"""The DeploymentPlan: complete enough that an emitter only places text and decides nothing.

Every element has an `address` ("chat/decode/1") and `because`: the field paths of the spec that caused it.
Its parts stand in modules of their own and are named here for everyone. Knows no target format and no solver.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from disaggc.ir.element import (
    Argument,
    Because,
    Element,
    EnvVar,
    FromSecret,
    LeaderAddress,
    Literally,
    NodeRank,
    OwnAddress,
    Role,
    Value,
)
from disaggc.ir.engines import KvLink, Memory, Pool, Ports, Replica, Slot, Timings
from disaggc.ir.forecast import (
    Alternative,
    Basis,
    ClassPrediction,
    Comparison,
    Expectation,
    Percentiles,
    Prediction,
    Ratio,
    Yardstick,
)
from disaggc.ir.front import Deadlines, Overcommit, ProxyInstance, ProxyPlan
from disaggc.ir.machines import Node, NumaDomain, Shape

__all__ = [
    "Alternative",
    "Argument",
    "Basis",
    "Because",
    "ClassPrediction",
    "Comparison",
    "ConnectorPlan",
    "Deadlines",
    "DeploymentPlan",
    "Element",
    "EngineRelease",
    "EnvVar",
    "Expectation",
    "FromSecret",
    "KvLink",
    "LeaderAddress",
    "Literally",
    "Memory",
    "ModelRef",
    "Node",
    "NodeRank",
    "NumaDomain",
    "Overcommit",
    "OwnAddress",
    "Percentiles",
    "Pool",
    "Ports",
    "Prediction",
    "Provenance",
    "ProxyInstance",
    "ProxyPlan",
    "Ratio",
    "Replica",
    "Role",
    "RolloutPolicy",
    "ServicePlan",
    "Shape",
    "Slot",
    "SolverReport",
    "Timings",
    "Value",
    "WatchPolicy",
    "Yardstick",
]


class EngineRelease(Element):
    """Which vLLM runs."""

    version: str
    """As the spec pins it."""
    snapshot: str
    """Flag snapshot it was checked against."""
    command: str | None
    """Executable (systemd, local)."""


class ModelRef(Element):
    """Which model runs."""

    id: str
    """Hugging Face id."""
    path: str
    """First argument of `vllm serve`: the weights path, else the id."""
    served_name: str
    """Name clients use."""
    revision: str | None
    """Pinned revision."""
    max_model_len: int
    """Smallest of the roles'; the proxy checks against it."""
    kv_bytes_per_token: float
    """Whole model, bytes."""


class ConnectorPlan(Element):
    """How KV moves."""

    type: Literal["nixl", "nixl-push", "mooncake", "moriio"]
    """Family; also the proxy's dialect."""
    name: str
    """vLLM's connector name."""
    lease_s: int
    """How long prefill keeps unfetched KV."""
    load_failure: Literal["fail", "recompute"]
    """Decode's policy when KV does not arrive."""


class ServicePlan(Element):
    """One service as it should run."""

    name: str
    """Service name."""
    mode: Literal["disaggregated", "colocated", "flexible"]
    """How it serves."""
    cohort: str
    """Revision of prefill and decode; only equal cohorts pair."""
    model: ModelRef
    engine: EngineRelease
    connector: ConnectorPlan | None
    """None when colocated."""
    pools: tuple[Pool, ...]
    links: tuple[KvLink, ...]
    proxy: ProxyPlan
    ratio: Ratio | None
    """Replicas per role; None when colocated."""
    nodes: Ratio | None
    """Nodes per role; None when colocated."""
    flexible_ratio: Ratio | None = None
    """How a flexible pool's replicas are split by routing."""
    priorities: dict[str, int] = Field(default={})
    """Admission priority at the proxy, by workload class; higher is admitted first."""
    skip_prefill_below: int
    """Uncached prompt tokens under which decode prefills alone (break-even)."""
    predicted: Expectation
    colocated: Expectation | None
    """The best colocated layout on the same nodes."""
    comparison: Comparison | None
    """Chosen mode against the other."""
    alternatives: tuple[Alternative, ...]
    prefill_doubling_rate: float | None = None
    """Request rate at which one more prefill node becomes worth it, requests/s; None where not computed."""
    because: Because = ()


class SolverReport(Element):
    """How the answer was found."""

    status: Literal["optimal", "feasible", "locked"]
    """locked: the ratio came from disaggc.lock."""
    objective: float
    bound: float
    gap: float
    """(bound - objective) / bound."""
    wall_s: float
    """Not part of the fingerprint."""


class Provenance(Element):
    """What the plan was made from."""

    disaggc: str
    """Compiler version."""
    spec: str
    """Digest of the resolved spec."""
    catalog: str
    """Digest of the facts that were used."""
    calibration: str | None
    """Digest of the calibration file."""
    step_times: str | None = None
    """Library of measured step times, with its version; None: hardware priors and the calibration file alone."""


class WatchPolicy(Element):
    """How drift is answered."""

    mode: Literal["observe", "propose", "apply"]
    interval_s: float
    cooldown_s: float
    min_gain: float


class RolloutPolicy(Element):
    """How changes are carried out."""

    strategy: Literal["safe", "fast"]
    drain_s: int
    """How long a replica may finish its requests."""
    state_backend: Literal["local", "kubernetes"]


class DeploymentPlan(Element):
    """What should exist. Canonical bytes and fingerprint: `ir.canonical`."""

    version: Literal[1] = 1
    services: tuple[ServicePlan, ...]
    nodes: tuple[Node, ...]
    fabric: str
    """Fabric type, for transports."""
    allow_tcp: bool
    gid_index: int | None
    interface: str | None
    optimize: Literal["throughput", "latency", "cost", "nodes"]
    rollout: RolloutPolicy
    watch: WatchPolicy | None
    provenance: Provenance
    solver: SolverReport

    def node(self, name: str) -> Node:
        """The node of that name."""
        return next(node for node in self.nodes if node.name == name)
