"""Mooncake without named network cards.

Mooncake picks devices on its own; where it finds none that suits it falls back to TCP or fails after a healthy
start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import ROLES, at, choices, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`mooncake` over RDMA without `options.device_name` and with a node group that names no devices."""
    for service in resolved.services:
        connector = service.given.engine.connector
        if connector.type != "mooncake" or "device_name" in connector.options or not transfers_kv(service):
            continue
        names = {name for role in ROLES for name in choices(service, role).groups}
        silent = [g.name for g in resolved.groups if g.name in names and not g.nic_devices]
        if resolved.fabric.rdma and resolved.fabric.type != "efa" and silent:
            yield Finding(
                f"`type` mooncake chooses its own cards on node group {silent[0]}; it may fall back to TCP",
                at(service, "engine", "connector", "type"),
                help=f"write `cluster.nodes.{silent[0]}.nics.devices: [...]`, or `options: {{device_name: ...}}`",
            )


RULE = SpecRule(
    "DGC427",
    "mooncake-devices",
    Severity.WARNING,
    check,
    sources=(
        "https://github.com/kvcache-ai/Mooncake/issues/960",
        "https://github.com/vllm-project/vllm/issues/51518",
    ),
    fails=(
        """
        services: {chat: {engine: {connector: {type: mooncake}}}}
        #                                            ^ DGC427
        """,
    ),
    passes=(
        'services: {chat: {engine: {connector: {type: mooncake, options: {device_name: "mlx5_0,mlx5_1"}}}}}',
    ),
)
