"""Replicas of the solution grouped into pools, with ports, memory, lifecycle, command line and environment decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from disaggc.ir.plan import ConnectorPlan, Memory, Pool, Replica, Role, Shape, Slot, Timings
from disaggc.perf.estimate import Basis
from disaggc.perf.memory import Fit, MemoryDemand, NoFit, fit
from disaggc.perf.models import Models
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, ResolvedSpec
from disaggc.solve.lower.arguments import EngineSizes, engine_arguments
from disaggc.solve.lower.connector import Place, transfer_config
from disaggc.solve.lower.environment import engine_env
from disaggc.solve.lower.lifecycle import timings
from disaggc.solve.lower.ports import first_device, first_port, replica_ports
from disaggc.solve.solution import Placed, ServiceSolution

GIB = 1 << 30
SHM_SHARED = 16 * GIB
"""NCCL and vLLM's message queues between the workers of one engine (llm-d and vLLM guides use 16-20 GiB)."""
SHM_SINGLE = 2 * GIB
HOST_SHARE = 0.9
"""Of a node's memory; the system and the node's agents need the rest, and a scheduler does not hand it out."""


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Service-wide times that every pool keeps to."""

    lease_s: int
    drain_s: int
    handoff_s: float
    """From the end of prefill to the end of the transfer."""


@dataclass(frozen=True, slots=True)
class _Kind:
    role: Role
    group: str
    shape: Shape


def service_pools(
    models: Models,
    service: ResolvedService,
    solution: ServiceSolution,
    *,
    connector: ConnectorPlan | None,
    times: Lifetimes,
) -> tuple[Pool, ...]:
    """One pool for each (role, node group, shape), prefill before decode; indices run through the whole role."""
    served = sum(outcome.rate.value for outcome in solution.prediction.classes)
    kinds = _kinds(solution.replicas)
    pools = []
    next_index: dict[Role, int] = {}
    for kind, placed in kinds.items():
        in_role = sum(len(p) for k, p in kinds.items() if k.role is kind.role)
        name = kind.role.value if sum(k.role is kind.role for k in kinds) == 1 else _long_name(kind, kinds)
        planned = next(
            b for b in solution.batches if (b.role, b.group, b.shape) == (kind.role, kind.group, kind.shape)
        )
        builder = _PoolBuilder(models, service, kind, connector=connector, times=times, rate=served / in_role)
        builder.hold(planned.max_seqs)
        first = next_index.get(kind.role, 0)
        next_index[kind.role] = first + len(placed)
        pools.append(builder.pool(name, placed, first=first, batch=planned.batch))
    return tuple(pools)


def _kinds(replicas: Sequence[Placed]) -> Mapping[_Kind, tuple[Placed, ...]]:
    order = list(Role)
    found: dict[_Kind, list[Placed]] = {}
    for placed in sorted(replicas, key=lambda p: (order.index(p.role), p.group, str(p.shape))):
        found.setdefault(_Kind(placed.role, placed.group, placed.shape), []).append(placed)
    return {kind: tuple(placed) for kind, placed in found.items()}


def _long_name(kind: _Kind, kinds: Iterable[_Kind]) -> str:
    alike = [k for k in kinds if k.role is kind.role and k.group == kind.group]
    suffix = "" if len(alike) == 1 else "-" + str(kind.shape).replace(" ", "")
    return f"{kind.role.value}-{kind.group}{suffix}"


def _host_memory(group: NodeGroupFacts, placed: Placed) -> int | None:
    """A replica's part of a node's memory, by its part of the accelerators; None where the spec does not say."""
    if group.cpu_memory_bytes is None:
        return None
    return int(HOST_SHARE * group.cpu_memory_bytes * len(placed.slots[0].devices) / group.per_node)


class _PoolBuilder:
    """What the replicas of one pool share."""

    def __init__(
        self,
        models: Models,
        service: ResolvedService,
        kind: _Kind,
        *,
        connector: ConnectorPlan | None,
        times: Lifetimes,
        rate: float,
    ) -> None:
        self.resolved: ResolvedSpec = models.resolved
        self.models, self.service, self.kind = models, service, kind
        self.connector, self.times, self.rate = connector, times, rate
        self.group: NodeGroupFacts = self.resolved.group(kind.group)
        self.fit = self._sized()

    def _sized(self) -> Fit:
        role, shape = self.kind.role, self.kind.shape
        seen = self.models.seen_kv_tokens(self.service, self.group, role, shape=shape)
        demand = MemoryDemand(
            self.service.classes, self.rate, self.times.handoff_s, self.times.lease_s, seen_tokens=seen
        )
        sized = fit(self.service, self.group, role, shape=shape, demand=demand)
        if isinstance(sized, NoFit):
            # The solver placed only replicas that fit; anything else is a bug of ours.
            raise TypeError(f"{self.service.name}: {sized}")
        return sized

    def hold(self, most: int | None) -> None:
        """No more sequences per engine than the bounds were planned with."""
        if most is not None:
            self.fit = replace(self.fit, max_num_seqs=min(self.fit.max_num_seqs, most))

    def pool(self, name: str, placed: Sequence[Placed], *, first: int, batch: float) -> Pool:
        vendor = self.group.accelerator.vendor
        engine = self.service.given.engine
        nodes = len(placed[0].slots)
        lifecycle = timings(
            self.kind.role,
            vendor,
            lease_s=self.times.lease_s,
            drain_s=self.times.drain_s,
            weight_bytes=self.service.model.weight_bytes / nodes,
        )
        return Pool(
            address=f"{self.service.name}/{name}",
            role=self.kind.role,
            accelerator=self.group.accelerator.id,
            vendor=vendor,
            group=self.group.name,
            shape=self.kind.shape,
            image=engine.images.get(vendor, engine.image),
            memory=self._memory(),
            timings=lifecycle,
            shm_bytes=SHM_SHARED if self.kind.shape.accelerators > 1 else SHM_SINGLE,
            host_memory_bytes=_host_memory(self.group, placed[0]),
            replicas=tuple(self._replica(first + i, p, lifecycle) for i, p in enumerate(placed)),
            load_per_replica=self.rate,
            operating_batch=batch,
            because=(f"services.{self.service.name}.workload", f"services.{self.service.name}.constraints"),
        )

    def _replica(self, index: int, placed: Placed, lifecycle: Timings) -> Replica:
        address = f"{self.service.name}/{self.kind.role.value}/{index}"
        nodes = len(placed.slots)
        kind = None if self.connector is None else self.connector.type
        ports = replica_ports(
            first_device(self.resolved, placed.slots[0]),
            self.kind.shape,
            self.kind.role,
            connector=kind,
            multi_node=nodes > 1,
            start=first_port(self.resolved),
        )
        transfer = None
        if self.connector is not None:
            transfer = transfer_config(
                self.service,
                self.connector,
                self.kind.role,
                ports=ports,
                place=Place(address, self.resolved.fabric.type, self.group.accelerator.vendor),
            )
        sizes = self._sizes()
        return Replica(
            address=address,
            index=index,
            slots=tuple(Slot(node=s.node, rank=s.rank, devices=s.devices) for s in placed.slots),
            ports=ports,
            arguments=engine_arguments(
                self.service,
                self.kind.role,
                self.kind.shape,
                ports=ports,
                sizes=sizes,
                nodes=nodes,
                shutdown_s=lifecycle.shutdown_s,
                transfer=transfer,
            ),
            env=engine_env(
                self.resolved,
                self.service,
                self.kind.role,
                group=self.group,
                ports=ports,
                connector=self.connector,
                startup_s=lifecycle.startup_s,
                multi_node=nodes > 1,
            ),
            because=(f"cluster.nodes.{self.group.name}", f"services.{self.service.name}.workload"),
        )

    def _sizes(self) -> EngineSizes:
        measured = (
            self.fit.basis is not Basis.PRIOR
        )  # a fixed size that is only computed may run out of memory
        # A CPU engine would take its share of all the host's memory, not of what the plan gives it.
        known = measured or self.group.accelerator.vendor == "cpu"
        return EngineSizes(
            memory=self._memory(),
            max_num_batched_tokens=self.fit.max_num_batched_tokens,
            block_size=self.fit.block_size,
            capture_size=self.fit.capture_size,
            kv_cache_bytes=int(self.fit.kv_tokens_low * self.fit.kv_bytes_per_token) if known else None,
        )

    def _memory(self) -> Memory:
        sized = self.fit
        return Memory(
            total=sized.total_bytes,
            usable=sized.usable_bytes,
            weights=sized.weights_bytes,
            overhead_low=sized.overhead_low_bytes,
            overhead_high=sized.overhead_high_bytes,
            kv_bytes_per_token=sized.kv_bytes_per_token,
            kv_tokens=sized.kv_tokens_low,
            kv_tokens_high=sized.kv_tokens_high,
            sequences=sized.max_num_seqs,
            leased_tokens=sized.leased_tokens,
        )
