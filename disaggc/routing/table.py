"""The routing file: everything the data plane knows about one service. Emitters write it, the proxy reads it.

It carries addresses, sizes, limits and policies, never a decision of the solver's, and never a secret: only where
the secret is found. Knows no HTTP and no clock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from disaggc.ir.plan import Role
from disaggc.routing.limits import (
    Admission,
    ApiKeySource,
    ClassEntry,
    Count,
    Health,
    Host,
    Limits,
    Listen,
    Log,
    Name,
    Part,
    Port,
    Positive,
    Seconds,
    Timeouts,
    TlsFiles,
)
from disaggc.routing.text import dumped, loaded


class Dialect(StrEnum):
    """How prefill hands its KV to decode; comes from the plan, never from a guess."""

    NIXL = "nixl"
    NIXL_PUSH = "nixl-push"
    MOONCAKE = "mooncake"
    MORIIO_READ = "moriio-read"
    MORIIO_WRITE = "moriio-write"
    NONE = "none"


class Policy(StrEnum):
    """How a replica is chosen among those that may serve."""

    LEAST_WORK = "least-work"
    POWER_OF_TWO = "power-of-two"
    PREFIX_AFFINITY = "prefix-affinity"
    ROUND_ROBIN = "round-robin"


class ReplicaState(StrEnum):
    """A draining replica finishes what it has and gets nothing new."""

    ACTIVE = "active"
    DRAINING = "draining"


class KvEndpoint(Part):
    """What the other side must know to fetch or receive KV, as far as the dialect needs it statically."""

    host: Host
    """Routable address of the engine's KV side channel."""
    side_channel_port: Port | None = None
    """NIXL side channel, or MoRIIO handshake port."""
    bootstrap_port: Port | None = None
    """Mooncake bootstrap server."""
    notify_port: Port | None = None
    """MoRIIO notification port."""
    engine_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}$")] | None = (
        None
    )
    """The engine's KV identity; must be known beforehand for push and Mooncake."""
    dp_rank: Count = 0
    """Data-parallel rank the identity belongs to."""


class ReplicaEntry(Part):
    """One engine."""

    address: Name
    """`service/role/index`."""
    host: Host
    """Where its HTTP port listens."""
    port: Port
    """HTTP port."""
    cohort: Name
    """Only prefill and decode of equal cohort pair."""
    state: ReplicaState = ReplicaState.ACTIVE
    """Whether it takes new requests."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Relative speed among the replicas of its role."""
    kv: KvEndpoint | None = None
    """Needed by every dialect but NIXL pull, where prefill's answer carries it."""
    tp: Positive = 1
    """Tensor-parallel size."""
    dp: Positive = 1
    """Data-parallel size."""
    pp: Positive = 1
    """Pipeline-parallel size."""
    kv_tokens: Positive | None = None
    """Tokens of KV the whole replica holds; None = not limited by it."""
    max_seqs: Positive | None = None
    """Sequences it runs at once; None = not limited by it."""


class PoolEntry(Part):
    """Identical replicas of one role."""

    address: Name
    """`service/role`."""
    role: Role
    """What they do; the replicas of a flexible pool are split by `split`."""
    replicas: tuple[ReplicaEntry, ...]
    """The engines."""
    split: tuple[Count, Count] | None = None
    """Flexible only: how many replicas, in order, prefill and how many of the rest decode."""

    @model_validator(mode="after")
    def _split_fits(self) -> PoolEntry:
        if (self.split is not None) != (self.role is Role.FLEXIBLE):
            raise ValueError("`split` belongs to flexible pools, and only to them")
        if self.split is not None and sum(self.split) > len(self.replicas):
            raise ValueError(f"`split` names {sum(self.split)} replicas, the pool has {len(self.replicas)}")
        return self


class RoutingTable(Part):
    """The routing file of one service's proxies."""

    version: Literal[1] = 1
    """Format of this file."""
    service: Name
    """Service name."""
    generation: Count
    """Grows with every change; a proxy never goes back to a smaller one."""
    fingerprint: str = ""
    """Of the plan this came from."""
    models: Annotated[
        tuple[Annotated[str, StringConstraints(min_length=1, max_length=512)], ...], Field(min_length=1)
    ]
    """Names clients may use for the model."""
    dialect: Dialect
    """How KV moves; `none` for colocated engines."""
    pools: Annotated[tuple[PoolEntry, ...], Field(min_length=1)]
    """Where requests go."""
    policy: Policy = Policy.LEAST_WORK
    """How a replica is chosen."""
    on_prefill_failure: Literal["retry", "decode-locally", "error"] = "retry"
    """After prefill failed: another prefill replica, then an error; or decode alone; or an error at once."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further tries of one request, as long as no byte went out."""
    skip_prefill_below: Count = 0
    """Uncached prompt tokens under which decode prefills alone."""
    max_model_len: Positive
    """The smallest of the engines'."""
    block_size: Positive = 16
    """Tokens of one KV block; shorter prompts have nothing to transfer."""
    lease_s: Seconds = 30.0
    """How long prefill keeps KV that decode has not fetched."""
    proxies: Positive = 1
    """Proxy processes that share the service; each takes its share of the admission limits."""
    timeouts: Timeouts = Timeouts()
    admission: Admission = Admission()
    limits: Limits = Limits()
    listen: Listen = Listen()
    health: Health = Health()
    log: Log = Log()
    api_key: ApiKeySource | None = None
    """Key clients must present; None = open."""
    classes: dict[Name, ClassEntry] = Field(default_factory=dict)
    """Workload classes by name."""
    class_header: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9\-]{0,63}$")] = "x-workload-class"
    """Header that names a request's class."""
    default_class: Name = "default"
    """Class of requests that name none, or one that is not listed; left at `default`, an only listed one."""
    engine_tls: TlsFiles | None = None
    """TLS towards the engines."""

    @model_validator(mode="after")
    def _consistent(self) -> RoutingTable:
        addresses = [replica.address for pool in self.pools for replica in pool.replicas]
        if len(set(addresses)) != len(addresses):
            raise ValueError("two replicas have the same `address`")
        if self.timeouts.handoff_s >= self.lease_s:
            raise ValueError(
                f"`timeouts.handoff_s` {self.timeouts.handoff_s:g} s is not below `lease_s` {self.lease_s:g} s: "
                "KV could be freed before decode fetches it"
            )
        for pool in self.pools:
            if self.dialect is Dialect.NONE and pool.role in _PREFILLS:
                raise ValueError(
                    f"pool `{pool.address}` prefills for others, which `dialect: none` has no way to do"
                )
            for replica in pool.replicas:
                _check_kv(self.dialect, pool, replica)
        return self


_PREFILLS = {Role.PREFILL, Role.FLEXIBLE}


def _check_kv(dialect: Dialect, pool: PoolEntry, replica: ReplicaEntry) -> None:
    """What the dialect must know of a replica before the first request."""
    kv = replica.kv
    fields: tuple[str, ...] = ()
    prefills = pool.role in _PREFILLS
    match dialect:
        case Dialect.NIXL | Dialect.NONE:
            return
        case Dialect.NIXL_PUSH:
            fields = ("side_channel_port", "engine_id") if prefills else ()
        case Dialect.MOONCAKE:
            fields = ("bootstrap_port", "engine_id") if prefills else ()
        case Dialect.MORIIO_READ | Dialect.MORIIO_WRITE:
            fields = ("side_channel_port", "notify_port")
    missing = [name for name in fields if kv is None or getattr(kv, name) is None]
    if missing:
        raise ValueError(
            f"replica `{replica.address}` lacks `kv.{missing[0]}`, which dialect {dialect} needs"
        )


def load_table(text: str | bytes) -> RoutingTable:
    """The table in a JSON text; TableError when it is not one."""
    return loaded(RoutingTable, text)


def dump_table(table: RoutingTable) -> str:
    """Its canonical text."""
    return dumped(table)
