"""A connector that the pinned vLLM does not have.

Connectors come and go between versions; an unknown one stops every engine at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.wording import listed


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Connector families without a connector in the version's snapshot."""
    for service in resolved.services:
        kind = service.given.engine.connector.type
        families = {facts.family for facts in service.snapshot.connectors.values()}
        if transfers_kv(service) and kind not in families:
            there = sorted(families & {"nixl", "nixl-push", "mooncake", "moriio"})
            yield Finding(
                f"`type` {kind} does not exist in vLLM {service.given.engine.vllm}; engines would not start",
                at(service, "engine", "connector", "type"),
                help=f"write one of {listed(there)}, or pin a newer vLLM",
            )


RULE = SpecRule(
    "DGC404",
    "connector-version",
    Severity.ERROR,
    check,
    sources=("vLLM: kv_connector/factory.py of each version",),
    fails=(
        """
        services: {chat: {engine: {vllm: 0.21.0, connector: {type: nixl-push}}}}
        #                                                          ^ DGC404
        """,
    ),
    passes=("services: {chat: {engine: {connector: {type: nixl}}}}",),
    suppressible=False,
)
