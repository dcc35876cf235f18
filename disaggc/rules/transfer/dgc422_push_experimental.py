"""The push connector, which is young.

An aborted or unposted write leaves decode waiting with its blocks held, and a watchdog only logs it. Prove it on
the cluster before traffic.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`nixl-push` where the version has it and the service may be disaggregated."""
    for service in resolved.services:
        exists = service.snapshot.connector_of("nixl-push") is not None
        if service.given.engine.connector.type == "nixl-push" and exists and transfers_kv(service):
            yield Finding(
                "`type` nixl-push is experimental; an aborted write leaves decode waiting with its KV held",
                at(service, "engine", "connector", "type"),
                help="write `type: nixl`, or suppress this once `disaggc smoke` has passed on the cluster",
            )


RULE = SpecRule(
    "DGC422",
    "push-experimental",
    Severity.WARNING,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/46283",
        "https://github.com/vllm-project/vllm/issues/50754",
    ),
    fails=(
        """
        services: {chat: {engine: {connector: {type: nixl-push}}}}
        #                                            ^ DGC422
        """,
    ),
    passes=("services: {chat: {engine: {connector: {type: nixl}}}}",),
)
