"""Step-time tables for all pools of a plan, as the files that target local hands to the doubles."""

from __future__ import annotations

from disaggc.ir.plan import DeploymentPlan, Pool, ServicePlan
from disaggc.perf.models import Models
from disaggc.resolve.model import ResolvedSpec
from disaggc.simengine.timing import timing_of


def timing_tables(plan: DeploymentPlan, resolved: ResolvedSpec) -> dict[str, str]:
    """Pool address -> JSON text. Empty where the constants cannot be had, which compiling has already reported."""
    models = Models.of(resolved).value
    if models is None:
        return {}
    services = {service.name: service for service in resolved.services}
    return {
        pool.address: timing_of(
            models, services[service.name], pool, same_node=_inside(service, pool)
        ).model_dump_json(indent=1)
        + "\n"
        for service in plan.services
        for pool in service.pools
    }


def _inside(service: ServicePlan, pool: Pool) -> bool:
    """Whether all KV the pool takes part in moves inside nodes."""
    links = [link for link in service.links if pool.address in (link.prefill, link.decode)]
    return bool(links) and all(link.transport == "link" for link in links)
