"""A connector that the accelerators' vendor does not have.

MoRIIO is built on ROCm's libraries and does not exist in CUDA images.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import ROLES, at, choices, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`moriio` for a service with a role that may run on other accelerators than AMD's."""
    for service in resolved.services:
        if service.given.engine.connector.type != "moriio" or not transfers_kv(service):
            continue
        names = {name for role in ROLES for name in choices(service, role).groups}
        foreign = [g for g in resolved.groups if g.name in names and g.accelerator.vendor != "amd"]
        if foreign:
            yield Finding(
                f"`type` moriio exists on AMD accelerators only, node group {foreign[0].name} has "
                f"{foreign[0].accelerator.id}",
                at(service, "engine", "connector", "type"),
                help="write `connector: {type: nixl}`, or restrict the roles with `constraints.<role>.nodes`",
            )


RULE = SpecRule(
    "DGC403",
    "connector-vendor",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: kv_connector/v1/moriio",),
    fails=(
        """
        services: {chat: {engine: {connector: {type: moriio}}}}
        #                                            ^ DGC403
        """,
    ),
    passes=(
        """
        cluster: {nodes: {h100: {accelerator: {type: mi300x, per_node: 8}}}}
        services: {chat: {engine: {connector: {type: moriio}}}}
        """,
    ),
    suppressible=False,
)
