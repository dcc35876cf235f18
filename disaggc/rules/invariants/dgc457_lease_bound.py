"""A lease that ends before decode can fetch, or that the engine is not told.

KV read after its lease is other requests' memory, with HTTP 200. The lease must cover a first handshake (5 s), the
transfer at its cautious bandwidth and the queue that the plan predicts. On a network on which KV takes longer than the
longest lease the compiler chooses (300 s), prefill and decode cannot stand apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.front import LEASE_CEILING_S
from disaggc.ir.plan import Role, ServicePlan
from disaggc.rules.planned import options, replicas, service_path, transfer
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule
from disaggc.units import format_duration

_HANDSHAKE_S = 5.0
_HOP_S = 1.0


def check(planned: Planned) -> Iterator[Finding]:
    """Lease against handshake + hop + transfer; prefill's option against the plan's lease."""
    for service in planned.plan.services:
        if service.connector is None:
            continue
        needed = _HANDSHAKE_S + _HOP_S + _transfer_s(service)
        if needed > LEASE_CEILING_S == service.connector.lease_s:
            yield Finding(
                f"KV takes {format_duration(_transfer_s(service))} from prefill to decode at the cautious bandwidth of "
                f"its slowest link, and prefill keeps it for {LEASE_CEILING_S} s at most",
                (*service_path(service), "constraints", "mode"),
                help="write `mode: colocated`, ask for shorter prompts, or plan with a faster fabric",
            )
        elif service.connector.lease_s < needed:
            yield Finding(
                f"the lease of {service.connector.lease_s} s is shorter than the {needed:.1f} s until KV is fetched",
                service_path(service),
            )
    for service, pool, replica in replicas(planned.plan):
        config = transfer(replica)
        if service.connector is None or config is None or pool.role is Role.DECODE:
            continue
        told = options(config).get("kv_lease_duration")
        if told is not None and told != service.connector.lease_s:
            yield Finding(
                f"{replica.address} is told a lease of {told} s, the plan has {service.connector.lease_s} s",
                service_path(service),
            )


def _transfer_s(service: ServicePlan) -> float:
    """The slowest mean transfer among the service's links, at its cautious bandwidth."""
    times = (link.bytes_per_request / link.bandwidth_low for link in service.links if link.bandwidth_low > 0)
    return max(times, default=0.0)


RULE = PlanRule(
    "DGC457",
    "lease-bound",
    Severity.ERROR,
    check,
    sources=("https://github.com/aws-samples/aws-do-eks/pull/84",),
    fails=(
        (Edit("services/chat/connector/lease_s", 2),),
        (
            Edit(
                "services/chat/pools/prefill/replicas/0/arguments/--kv-transfer-config",
                '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_connector_extra_config":{"kv_lease_duration":9}}',
            ),
        ),
    ),
)
