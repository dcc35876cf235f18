"""KV roles that do not fit the pools.

Two producers never exchange anything; `kv_both` is deprecated for NIXL and hides a mis-wired proxy. Only a flexible
pool, whose roles the routing decides, may have it.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Role
from disaggc.rules.planned import replicas, service_path, transfer
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_ROLE = {
    Role.PREFILL: "kv_producer",
    Role.DECODE: "kv_consumer",
    Role.FLEXIBLE: "kv_both",
    Role.COLOCATED: None,
}


def check(planned: Planned) -> Iterator[Finding]:
    """`kv_role` and connector of every replica against its pool's role and the service's connector."""
    for service, pool, replica in replicas(planned.plan):
        config, wanted = transfer(replica), _ROLE[pool.role]
        role = None if config is None else config.get("kv_role", "unset")
        if role != wanted:
            yield Finding(
                f"{replica.address} has `kv_role` {role}, a {pool.role} replica needs {wanted}",
                service_path(service),
            )
        elif pool.role is Role.FLEXIBLE and (service.connector is None or service.connector.type != "nixl"):
            yield Finding(
                f"{replica.address} is flexible, which only NIXL pull can be", service_path(service)
            )
        elif config is not None and service.connector is not None:
            name = config.get("kv_connector")
            if name != service.connector.name:
                yield Finding(
                    f"{replica.address} has `kv_connector` {name}, the proxy speaks {service.connector.name}",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC452",
    "kv-roles",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/connector.py:97", "https://github.com/vllm-project/vllm/issues/11490"),
    fails=(
        (
            Edit(
                "services/chat/pools/decode/replicas/0/arguments/--kv-transfer-config",
                '{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_connector_extra_config":{"kv_lease_duration":30}}',
            ),
        ),
        (Edit("services/chat/connector/name", "MooncakeConnector"),),
    ),
)
