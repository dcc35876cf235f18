"""EFA without the libfabric backend.

UCX never uses RDMA on EFA: transfers fall back to TCP with HTTP 200. The compiler writes `LIBFABRIC`; options that
name another backend, and connectors that cannot use it, are errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """On an EFA fabric: `options.backends` without LIBFABRIC, or a connector other than NIXL."""
    if resolved.fabric.type != "efa":
        return
    for service in resolved.services:
        connector = service.given.engine.connector
        if not transfers_kv(service):
            continue
        if connector.type not in ("nixl", "nixl-push"):
            yield Finding(
                f"`type` {connector.type} cannot use RDMA on EFA; KV would move over TCP",
                at(service, "engine", "connector", "type"),
                help="write `connector: {type: nixl}`",
            )
        backends = connector.options.get("backends")
        if backends is not None and backends != ["LIBFABRIC"]:
            yield Finding(
                f"`backends` {backends} cannot use RDMA on EFA; KV would move over TCP",
                at(service, "engine", "connector", "options", "backends"),
                help="remove it; the compiler writes `[LIBFABRIC]`",
            )


RULE = SpecRule(
    "DGC418",
    "efa-backend",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/27055",
        "https://github.com/ai-dynamo/nixl/issues/909",
    ),
    fails=(
        """
        cluster: {fabric: {type: efa}}
        services: {chat: {engine: {connector: {options: {backends: [UCX]}}}}}
        #                                                          ^ DGC418
        """,
        """
        cluster: {fabric: {type: efa}}
        services: {chat: {engine: {connector: {type: mooncake}}}}
        #                                            ^ DGC418
        """,
    ),
    passes=("cluster: {fabric: {type: efa}}",),
)
