"""The KV connector of one service: vLLM's name for it, its options by version, and what each role passes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from disaggc.catalog.engines import EngineSnapshot
from disaggc.ir.plan import ConnectorPlan, Ports, Role
from disaggc.resolve.model import ResolvedService
from disaggc.spec.model import SettingValue

_NAMES = {
    "nixl": "NixlConnector",
    "nixl-push": "NixlPushConnector",
    "mooncake": "MooncakeConnector",
    "moriio": "MoRIIOConnector",
}
_KV_ROLE = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer", Role.FLEXIBLE: "kv_both"}
LEASE_KEY = "kv_lease_duration"
_NAMED_BEFOREHAND = ("nixl-push", "mooncake")
"""Decode is told the prefill engine's identity before prefill has answered, so the identity must be known."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the replica stands: its plan address, the fabric between nodes and the accelerators' vendor."""

    address: str
    fabric: str
    vendor: str


def connector_plan(service: ResolvedService, lease_s: int) -> ConnectorPlan:
    """The service's connector with its lease decided."""
    given = service.given.engine.connector
    return ConnectorPlan(
        type=given.type, name=_NAMES[given.type], lease_s=lease_s, load_failure=given.load_failure
    )


def has_leases(snapshot: EngineSnapshot, name: str) -> bool:
    """Whether this version's connector takes a lease; before 0.22 one environment variable held a flat timeout."""
    facts = snapshot.connectors.get(name)
    return facts is not None and LEASE_KEY in facts.option_keys


def transfer_config(
    service: ResolvedService, plan: ConnectorPlan, role: Role, *, ports: Ports, place: Place
) -> str:
    """The JSON of `--kv-transfer-config`, keys sorted.

    No engine_id where prefill's answer carries it: a pinned one survives restarts and misleads peers. Connectors whose
    decode request names the prefill engine leave no choice.
    """
    extra: dict[str, SettingValue] = {}
    if has_leases(service.snapshot, plan.name):
        extra[LEASE_KEY] = plan.lease_s
    if place.fabric == "efa" and plan.type in ("nixl", "nixl-push"):
        # UCX never uses RDMA on EFA; the transfer would fall back to TCP without a word.
        extra["backends"] = ["LIBFABRIC"]
    if plan.type == "moriio" and ports.side_channel is not None and ports.notify is not None:
        extra |= {"http_port": ports.http, "handshake_port": ports.side_channel, "notify_port": ports.notify}
    extra |= dict(service.given.engine.connector.options)
    config: dict[str, object] = {
        "kv_connector": plan.name,
        "kv_role": _KV_ROLE[role],
        "kv_load_failure_policy": plan.load_failure,
        "kv_connector_extra_config": _sorted(extra),
    }
    if plan.type in _NAMED_BEFOREHAND and role is not Role.DECODE:
        config["engine_id"] = place.address.replace("/", "-")
    if place.vendor == "cpu":
        config["kv_buffer_device"] = "cpu"
    return json.dumps(config, sort_keys=True)


def _sorted(options: Mapping[str, SettingValue]) -> dict[str, SettingValue]:
    return {key: options[key] for key in sorted(options)}
