"""Transports with which KV would not move as planned.

`UCX_TLS` lists the only transports UCX may use: without the vendor's copy transport KV cannot leave the
accelerator, without RDMA it goes over TCP with HTTP 200. On EFA the backend must be libfabric.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Pool, Replica, ServicePlan
from disaggc.rules.planned import env_value, moves_kv, options, replicas, service_path, text, transfer
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_COPY = {"nvidia": "cuda", "amd": "rocm", "cpu": ""}
_RDMA = ("rc", "dc", "ud", "ib", "srd", "all")


def check(planned: Planned) -> Iterator[Finding]:
    """UCX_TLS and `backends` of every replica that moves KV by NIXL, against vendor and fabric."""
    plan = planned.plan
    for service, pool, replica in replicas(plan):
        if (
            service.connector is None
            or service.connector.type not in ("nixl", "nixl-push")
            or not moves_kv(pool)
        ):
            continue
        problem = (
            _efa(replica) if plan.fabric == "efa" else _ucx(pool, replica, _needs_rdma(planned, service))
        )
        if problem is not None:
            yield Finding(f"{replica.address} {problem}", service_path(service))


def _needs_rdma(planned: Planned, service: ServicePlan) -> bool:
    return (
        planned.plan.fabric != "tcp"
        and not planned.plan.allow_tcp
        and any(k.transport == "rdma" for k in service.links)
    )


def _efa(replica: Replica) -> str | None:
    backends = options(transfer(replica) or {}).get("backends")
    return None if backends == ["LIBFABRIC"] else f"has backends {backends or 'UCX'}, EFA needs LIBFABRIC"


def _ucx(pool: Pool, replica: Replica, rdma: bool) -> str | None:  # noqa: FBT001 - a fact, not a mode
    listed = text(env_value(replica, "UCX_TLS"))
    if listed is None:
        return "leaves UCX_TLS unset; UCX may fall back to TCP without a word"
    names = listed.split(",")
    if "all" in names or listed.startswith("^"):
        return None
    copy = _COPY[pool.vendor]
    if copy and not any(name.startswith(copy) for name in names):
        return f"has UCX_TLS {listed}, which cannot reach {pool.vendor} memory"
    if rdma and not any(name.startswith(_RDMA) for name in names):
        return f"has UCX_TLS {listed}, which has no RDMA for the planned links"
    return None


RULE = PlanRule(
    "DGC471",
    "transports",
    Severity.ERROR,
    check,
    sources=("https://github.com/sgl-project/ome/issues/837", "https://github.com/ai-dynamo/nixl/issues/909"),
    fails=(
        (Edit("services/chat/pools/decode/replicas/0/env/UCX_TLS", "rc,sm,self"),),
        (Edit("services/chat/pools/decode/replicas/0/env/UCX_TLS", "tcp,cuda_copy"),),
        (Edit("services/chat/pools/decode/replicas/0/env/UCX_TLS", None),),
    ),
)
