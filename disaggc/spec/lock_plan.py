"""What of a plan disaggc.lock records, and the places a lock names, to compare a plan with where nothing was built."""

from __future__ import annotations

from collections import Counter

from disaggc.ir.changes import Baseline, Facet, facets_of, placement
from disaggc.ir.plan import DeploymentPlan, Pool, ServicePlan
from disaggc.spec.lock import Lock, LockedPool, LockedService, LockedSlot


def lock_of(plan: DeploymentPlan) -> Lock:
    """The layout of a plan, as it is recorded."""
    return Lock(
        disaggc=plan.provenance.disaggc,
        spec=plan.provenance.spec,
        catalog=plan.provenance.catalog,
        services={service.name: _service(service) for service in plan.services},
    )


def _service(service: ServicePlan) -> LockedService:
    replicas = sum(len(pool.replicas) for pool in service.pools)
    split = str(service.ratio) if service.ratio is not None else f"{replicas}{service.mode[0].upper()}"
    return LockedService(
        mode=service.mode,
        ratio=split,
        engine=service.engine.version,
        pools=tuple(_pool(pool) for pool in service.pools),
    )


def _pool(pool: Pool) -> LockedPool:
    return LockedPool(
        role=pool.role.value,
        group=pool.group,
        accelerator=pool.accelerator,
        shape=pool.shape,
        replicas=len(pool.replicas),
        batch=pool.operating_batch,
        max_num_seqs=pool.memory.sequences,
        placement=tuple(
            tuple(LockedSlot(node=slot.node, devices=slot.devices) for slot in replica.slots)
            for replica in pool.replicas
        ),
    )


def locked_baseline(lock: Lock, plan: DeploymentPlan) -> Baseline:
    """Replicas where the lock has them; proxies and routing, which it does not know, count as unchanged."""
    facets = {
        address: Facet(facet.place, None, facet.because)
        for address, facet in facets_of(plan).items()
        if address.split("/")[1] in ("proxy", "routing") and address.split("/")[0] in lock.services
    }
    for name, service in lock.services.items():
        numbers: Counter[str] = Counter()
        for pool in service.pools:
            for slots in pool.placement:
                where = tuple((slot.node, rank, slot.devices) for rank, slot in enumerate(slots))
                place = placement(pool.role, pool.shape.model_dump(), where)
                facets[f"{name}/{pool.role}/{numbers[pool.role]}"] = Facet(place, None)
                numbers[pool.role] += 1
    return Baseline(facets, {}, None)
