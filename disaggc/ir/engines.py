"""Engines of a plan: where each runs, what it listens on, holds and is started with; pools, and the KV between."""

from __future__ import annotations

from typing import Literal

from disaggc.ir.element import Argument, Because, Element, EnvVar, Role
from disaggc.ir.machines import Shape


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
