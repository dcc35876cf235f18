"""A pool that exchanges KV with nobody.

A prefill pool without a link is idle; a decode pool without one recomputes every prompt, with HTTP 200. A service
that is disaggregated has at least one replica of each role.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Role
from disaggc.rules.planned import pool_at, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Every prefill, decode and flexible pool stands in a link of fitting roles; links name pools that exist."""
    for service in planned.plan.services:
        path = service_path(service)
        for link in service.links:
            for end, role in ((link.prefill, Role.PREFILL), (link.decode, Role.DECODE)):
                pool = pool_at(service, end)
                if pool is None or pool.role not in (role, Role.FLEXIBLE):
                    yield Finding(f"a KV link names {end}, which is no {role} pool", path)
        ends = {end for link in service.links for end in (link.prefill, link.decode)}
        for pool in service.pools:
            if pool.role is not Role.COLOCATED and pool.address not in ends:
                yield Finding(f"{pool.address} exchanges KV with no other pool", path)
        if service.mode == "disaggregated":
            for role in (Role.PREFILL, Role.DECODE):
                if not any(pool.role is role and pool.replicas for pool in service.pools):
                    yield Finding(f"{service.name} is disaggregated and has no {role} replica", path)


RULE = PlanRule(
    "DGC460",
    "unlinked-pool",
    Severity.ERROR,
    check,
    sources=("https://github.com/vllm-project/vllm/issues/26896",),
    fails=((Edit("services/chat/links/0", None),),),
)
