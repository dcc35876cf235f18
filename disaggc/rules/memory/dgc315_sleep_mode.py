"""Sleep mode with a connector that cannot follow.

A sleeping engine unmaps memory that its KV connector has registered. Only NIXL pull over UCX and Mooncake over RDMA
can register it again; vLLM refuses to start with the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`enable-sleep-mode` where KV moves by a connector without support for it."""
    for service in resolved.services:
        connector = service.given.engine.connector
        backends = connector.options.get("backends", ["UCX"])
        pull = connector.type == "nixl" and backends == ["UCX"] and resolved.fabric.type != "efa"
        rdma = connector.type == "mooncake" and connector.options.get("mooncake_protocol", "rdma") == "rdma"
        if pull or rdma or not transfers_kv(service):
            continue
        for given in flags_named(service, "enable-sleep-mode"):
            if given.on:
                yield Finding(
                    f"`enable-sleep-mode` is not supported with connector {connector.type} as configured; "
                    "engines would refuse to start",
                    given.path,
                    help="remove it, or write `connector: {type: nixl}` with the UCX backend",
                )


RULE = SpecRule(
    "DGC315",
    "sleep-mode",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/vllm.py:1246-1302",),
    fails=(
        """
        services:
          chat:
            engine:
              connector: {type: nixl-push}
        #                       ^ DGC422
              settings: {enable-sleep-mode: true}
        #                                   ^ DGC315
        """,
    ),
    passes=("services: {chat: {engine: {settings: {enable-sleep-mode: true}}}}",),
)
