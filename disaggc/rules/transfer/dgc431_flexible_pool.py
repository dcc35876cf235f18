"""A flexible pool that cannot change roles.

In a flexible pool every replica may be prefill or decode, by routing alone. That needs a connector whose engines do
both at once: NIXL pull, with one pipeline stage.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`mode: flexible` with another connector than nixl, or with pipeline stages only."""
    for service in resolved.services:
        if service.mode != "flexible":
            continue
        connector = service.given.engine.connector.type
        if connector != "nixl":
            yield Finding(
                f"`type` {connector} fixes the role of an engine, `mode` flexible needs nixl",
                at(service, "engine", "connector", "type"),
                help="write `connector: {type: nixl}`, or `mode: disaggregated`",
            )
        stages = service.decode.pp
        if stages and min(stages) > 1:
            yield Finding(
                f"`pp` {list(stages)} splits engines into stages, `mode` flexible needs 1",
                at(service, "constraints", "decode", "pp"),
                help="write `pp: [1]`",
            )


RULE = SpecRule(
    "DGC431",
    "flexible-pool",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/connector.py:97, nixl/base_worker.py:886",),
    fails=(
        """
        services:
          chat:
            constraints: {mode: flexible}
            engine: {connector: {type: mooncake, options: {device_name: mlx5_0}}}
        #                              ^ DGC431
        """,
    ),
    passes=("services: {chat: {constraints: {mode: flexible}}}",),
    suppressible=False,
)
