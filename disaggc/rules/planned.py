"""How rules read a plan: flags, variables and transfer configuration as plain values. Judges nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from disaggc.diagnostics import FieldPath
from disaggc.ir.plan import Argument, DeploymentPlan, Literally, Pool, Replica, Role, ServicePlan, Value
from disaggc.resolve.model import ResolvedService
from disaggc.rules.rule import Planned

TRANSFER = "kv-transfer-config"


def service_path(service: ServicePlan) -> FieldPath:
    """The spec's field that the service came from."""
    return ("services", service.name)


def replicas(plan: DeploymentPlan) -> Iterator[tuple[ServicePlan, Pool, Replica]]:
    """Every replica with its pool and service."""
    for service in plan.services:
        for pool in service.pools:
            for replica in pool.replicas:
                yield service, pool, replica


def argument(replica: Replica, name: str) -> Argument | None:
    """The flag of that name (without dashes), if the replica has it."""
    return next((a for a in replica.arguments if a.flag == f"--{name}"), None)


def text(value: Value | None) -> str | None:
    """A literal value's text; None for what only the target knows."""
    return value.value if isinstance(value, Literally) else None


def flag_text(replica: Replica, name: str) -> str | None:
    """The literal value of a flag; None when absent, valueless or known to the target only."""
    found = argument(replica, name)
    return text(found.value) if found is not None else None


def flag_number(replica: Replica, name: str) -> float | None:
    """The flag's value as a number; None when it has none."""
    return number(flag_text(replica, name))


def env_value(replica: Replica, name: str) -> Value | None:
    """The variable's value, if the replica has it."""
    return next((variable.value for variable in replica.env if variable.name == name), None)


def env_number(replica: Replica, name: str) -> float | None:
    """The variable's literal value as a number; None when it has none."""
    return number(text(env_value(replica, name)))


def number(written: str | None) -> float | None:
    """A text as a number; None when it is none."""
    try:
        return float(written) if written is not None else None
    except ValueError:
        return None


def transfer(replica: Replica) -> Mapping[str, Any] | None:
    """`--kv-transfer-config` as data: None when absent, an empty mapping when it is not a JSON object."""
    written = flag_text(replica, TRANSFER)
    if written is None:
        return None
    try:
        config = json.loads(written)
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def options(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The connector's own options in a transfer configuration."""
    extra = config.get("kv_connector_extra_config", {})
    return extra if isinstance(extra, dict) else {}


def pool_at(service: ServicePlan, address: str) -> Pool | None:
    """The pool of that address."""
    return next((pool for pool in service.pools if pool.address == address), None)


def linked(service: ServicePlan) -> Iterator[tuple[Pool, Pool]]:
    """Prefill and decode pools that may exchange KV; a flexible pool exchanges with itself."""
    for link in service.links:
        prefill, decode = pool_at(service, link.prefill), pool_at(service, link.decode)
        if prefill is not None and decode is not None:
            yield prefill, decode


def resolved_service(planned: Planned, service: ServicePlan) -> ResolvedService | None:
    """The resolved service of that name, where the plan came with its spec."""
    found = planned.resolved.services if planned.resolved is not None else ()
    return next((candidate for candidate in found if candidate.name == service.name), None)


def moves_kv(pool: Pool) -> bool:
    """Whether the pool's replicas take part in KV transfer."""
    return pool.role is not Role.COLOCATED
