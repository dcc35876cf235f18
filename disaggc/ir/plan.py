"""The DeploymentPlan and its parts: complete enough that an emitter only places text and decides nothing.

Every element has an `address` ("chat/decode/1") and `because`: the field paths of the spec that caused it.
Knows no target format and no solver.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Currency = str
Because = tuple[str, ...]
"""Dotted field paths of the spec."""


class Element(BaseModel):
    """A part of the plan: frozen, no unknown keys."""

    # Built on first use: a command that needs one shape must not pay for the whole plan.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Role(StrEnum):
    """What a pool does. A flexible pool's replicas are prefill or decode by routing alone."""

    PREFILL = "prefill"
    DECODE = "decode"
    COLOCATED = "colocated"
    FLEXIBLE = "flexible"


class Literally(Element):
    """A value written as it stands."""

    kind: Literal["literal"] = "literal"
    value: str
    """The text."""


class FromSecret(Element):
    """A value that the target fetches from its secret store; never written by disaggc."""

    kind: Literal["secret"] = "secret"
    name: str
    """Name of the secret."""


class OwnAddress(Element):
    """The routable address of the node the process runs on: the pod's IP on Kubernetes, else the node's address."""

    kind: Literal["own-address"] = "own-address"


class LeaderAddress(Element):
    """The routable address of the replica's first node (multi-node replicas)."""

    kind: Literal["leader-address"] = "leader-address"


class NodeRank(Element):
    """The rank of the node within its replica, times `times`, plus `plus` (multi-node replicas)."""

    kind: Literal["node-rank"] = "node-rank"
    times: int = 1
    """Factor."""
    plus: int = 0
    """Offset."""


Value = Annotated[Literally | FromSecret | OwnAddress | LeaderAddress | NodeRank, Field(discriminator="kind")]


class EnvVar(Element):
    """One environment variable of a process."""

    name: str
    """Variable name."""
    value: Value
    """Its value or where it comes from."""
    because: Because = ()
    """Fields of the spec that caused it; empty for what the compiler adds."""


class Argument(Element):
    """One command-line flag; `value` None is a flag without a value."""

    flag: str
    """With its dashes, e.g. `--block-size`."""
    value: Value | None = None
    """Its value."""
    more: tuple[Value, ...] = ()
    """Further values of a list flag, after `value`."""
    because: Because = ()
    """Fields of the spec that caused it."""
    first_node_only: bool = False
    """Only on the first node of a multi-node replica."""
    other_nodes_only: bool = False
    """Only on the later nodes of a multi-node replica (e.g. `--headless`)."""


class Shape(Element):
    """How one engine is spread: tp x pp x dp accelerators; ep = expert-parallel degree (1: no expert placed whole)."""

    tp: int = 1
    """Tensor-parallel degree."""
    pp: int = 1
    """Pipeline-parallel degree."""
    dp: int = 1
    """Data-parallel degree."""
    ep: int = 1
    """Expert-parallel degree."""

    @property
    def accelerators(self) -> int:
        """Accelerators one replica takes."""
        return self.tp * self.pp * self.dp

    def __str__(self) -> str:
        """`tp8`, `tp4 dp2 ep8`."""
        parts = [f"tp{self.tp}"] + [
            f"{k}{v}" for k, v in (("pp", self.pp), ("dp", self.dp), ("ep", self.ep)) if v > 1
        ]
        return " ".join(parts)


class NumaDomain(Element):
    """Accelerators and processors of a node that are near each other."""

    devices: tuple[int, ...]
    """Accelerator indices."""
    cpus: str
    """Processors, `0-47,96-143`."""


class Node(Element):
    """One machine of the cluster that the plan uses or may use."""

    name: str
    """Host name, or `<group>-<n>` where the spec gives only a count."""
    group: str
    """Node group of the spec."""
    address: str | None
    """Literal address, None where the spec gives only a count."""
    rack: str | None = None
    """Rack, where the spec names racks."""
    pinned: bool = False
    """The spec names this host, so the target must place on exactly it."""
    vendor: Literal["nvidia", "amd", "cpu"]
    """Accelerator vendor."""
    accelerator: str
    """Catalog id of its accelerators."""
    accelerators: int
    """How many it has."""
    nics: int
    """RDMA cards."""
    nic_devices: tuple[str, ...] = ()
    """Their names, where the spec gives them."""
    numa: tuple[NumaDomain, ...] = ()
    """NUMA domains in order, where the spec gives them."""


class Slot(Element):
    """Where one part of a replica runs: a node and the accelerators on it."""

    node: str
    """Node name."""
    rank: int
    """Rank of this node within the replica, from 0."""
    devices: tuple[int, ...]
    """Accelerator indices on that node."""


class Ports(Element):
    """Every port a replica listens on, from the one port planner; None = not used."""

    http: int
    """OpenAI API, health and metrics."""
    side_channel: int | None = None
    """KV handshake (first of `side_channel_width`)."""
    side_channel_width: int = 0
    """One for each data-parallel engine."""
    bootstrap: int | None = None
    """Mooncake bootstrap server."""
    notify: int | None = None
    """MoRIIO notification port (first of `side_channel_width`)."""
    dp_rpc: int | None = None
    """Data-parallel RPC."""
    master: int | None = None
    """torch.distributed master of a multi-node replica."""
    internal: int
    """VLLM_PORT: first of the engine's own internal ports."""
    internal_width: int
    """How many of them are kept free."""


class Memory(Element):
    """Memory of one accelerator of the replica, bytes; ranges where predicted."""

    total: float
    """Physical memory."""
    usable: float
    """What the engine may take (utilisation x total)."""
    weights: float
    """Weights on the fullest accelerator."""
    overhead_low: float
    """Activations, graphs, communication buffers: low end."""
    overhead_high: float
    """The same: high end."""
    kv_bytes_per_token: float
    """KV bytes of one token on one accelerator."""
    kv_tokens: int
    """Tokens of KV one engine (all its accelerators of one data-parallel rank) holds, cautious end."""
    kv_tokens_high: int
    """The same, hopeful end."""
    sequences: int
    """Sequences pinned as max-num-seqs."""
    leased_tokens: int
    """KV kept for decode to fetch (prefill only)."""


class Timings(Element):
    """Seconds that must stay in order: pre-stop, drain, worker exit, then kill."""

    pre_stop_s: int
    """Sleep before SIGTERM, so that routing moves away first."""
    shutdown_s: int
    """`--shutdown-timeout`."""
    worker_exit_s: int
    """Extra time vLLM's workers take to exit; differs by vendor."""
    grace_s: int
    """Kill after this; greater than the sum."""
    startup_s: int
    """Longest start: weights, compilation, graphs."""


class Replica(Element):
    """One engine, possibly on several nodes."""

    address: str
    """`service/role/index`."""
    index: int
    """Position in the pool, from 0."""
    slots: tuple[Slot, ...]
    """Where it runs, rank 0 first."""
    ports: Ports
    """What it listens on."""
    arguments: tuple[Argument, ...]
    """The complete `vllm serve` command line after the model."""
    env: tuple[EnvVar, ...]
    """Its environment."""
    because: Because = ()
    """Fields of the spec that caused it."""


class Pool(Element):
    """Identical replicas of one role."""

    address: str
    """`service/role`, or `service/role-<accelerator>` where a role has several pools."""
    role: Role
    """What they do."""
    accelerator: str
    """Catalog id."""
    vendor: Literal["nvidia", "amd", "cpu"]
    """Vendor of the accelerator."""
    group: str
    """Node group."""
    shape: Shape
    """How each replica is spread."""
    image: str | None
    """Container image."""
    memory: Memory
    """Memory of one accelerator."""
    timings: Timings
    """Lifecycle limits."""
    shm_bytes: int
    """Size of /dev/shm."""
    host_memory_bytes: int | None = None
    """Host memory of one node that a part of a replica may take, /dev/shm included; None where it is not known."""
    replicas: tuple[Replica, ...]
    """The replicas."""
    load_per_replica: float
    """Requests per second each replica is planned for."""
    operating_batch: float
    """Sequences running at once per replica in the planned steady state."""
    because: Because = ()
    """Fields of the spec that caused it."""


class KvLink(Element):
    """A prefill pool that may hand KV to a decode pool; replicas of equal cohort pair."""

    prefill: str
    """Pool address."""
    decode: str
    """Pool address."""
    bytes_per_request: float
    """KV one mean request moves, bytes."""
    bandwidth: float
    """Planned bandwidth of one transfer, bytes/s."""
    bandwidth_low: float
    """Cautious end."""
    transport: Literal["rdma", "tcp", "link"]
    """What it rides on; `link` is the fast link inside one node."""


class ProxyInstance(Element):
    """One proxy process."""

    address: str
    """`service/proxy/index`."""
    node: str
    """Node it runs on."""


class ProxyPlan(Element):
    """The bundled proxy of a service."""

    instances: tuple[ProxyInstance, ...]
    """Where it runs."""
    port: int
    """Port for clients."""
    admin_port: int
    """Loopback port for administration and metrics."""
    api_key: Value | None
    """Key clients must present; None = open."""
    api_key_file: str | None = None
    """File that holds the key."""
    api_key_secret: tuple[str, str] | None = None
    """Kubernetes Secret name and key."""
    image: str | None
    """Container image."""
    command: str | None
    """Executable (systemd, local)."""
    policy: str
    """Replica choice."""
    on_prefill_failure: str
    """Failure policy."""
    drain_s: int
    """How long it drains on SIGTERM; at least the engines' grace."""
    idle_s: int
    """Idle time of pooled upstream connections; below the engines' keep-alive."""
    because: Because = ()
    """Fields of the spec that caused it."""


class Prediction(Element):
    """A predicted number with its 80 % range and its basis."""

    value: float
    low: float
    high: float
    basis: Literal["prior", "calibrated", "measured"]


class Percentiles(Element):
    """Predicted percentiles of one latency, milliseconds."""

    p50: Prediction
    p90: Prediction
    p99: Prediction


class ClassPrediction(Element):
    """What one workload class will see."""

    ttft_ms: Percentiles
    itl_ms: Percentiles
    e2e_ms: Percentiles
    rate: Prediction
    """Requests per second served."""


class Expectation(Element):
    """What a layout is predicted to do; the watcher and smoke compare the world with it."""

    classes: dict[str, ClassPrediction]
    """By workload class."""
    output_tok_per_s: Prediction
    """Generated tokens per second."""
    total_tok_per_s: Prediction
    """Prompt and generated tokens per second."""
    tokens_per_cost: Prediction | None
    """Total tokens per unit of currency; None without prices."""
    currency: str | None
    """Currency of it."""
    bottleneck: str
    """The limit that binds: prefill, decode, concurrency, rate, kv-memory, kv-transfer."""
    meets_objectives: bool
    """Whether every objective holds at the predicted value."""
    utilisation: dict[str, float] = {}
    """Share of capacity in use, by role."""


class Ratio(Element):
    """xPyD: replicas per role."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        """`1P4D`."""
        return f"{self.prefill}P{self.decode}D"


Yardstick = Literal["total_tok_per_s", "tokens_per_cost", "e2e"]
"""What two layouts are compared by: the goal's figure, or median end-to-end latency where that figure is equal."""


class Alternative(Element):
    """Another layout that was weighed, best first."""

    mode: Literal["disaggregated", "colocated", "flexible"]
    """How it serves."""
    ratio: Ratio | None
    """Replicas per role; None for colocated."""
    replicas: int
    """Replicas in all."""
    nodes: Ratio | None
    """Nodes per role; None for colocated."""
    shapes: dict[str, Shape]
    """Shape by role."""
    predicted: Expectation
    """What it would do."""
    relative: Prediction
    """How much better than the chosen layout in `metric` (1 = equal); the range says whether that is decided."""
    metric: Yardstick
    """What `relative` is a ratio of; e2e: the chosen layout's median end-to-end latency over this one's."""
    feasible: bool
    """Whether it meets every objective."""


class Comparison(Element):
    """Disaggregated against colocated."""

    margin: Prediction
    """How much better the chosen layout is than the best of the other mode in `metric`; above 1 it is better."""
    metric: Yardstick
    """What `margin` is a ratio of; e2e: the other's median end-to-end latency over the chosen one's."""
    verdict: Literal["decided", "undecided, calibrate"]
    """Undecided when the range contains 1."""


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
    priorities: dict[str, int] = {}
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
