"""A lease that never ends.

KV that decode never fetches (a client that left, a decode engine that died) stays on prefill until its lease ends.
With a very long one prefill's memory fills with it and the engine stands still.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule
from disaggc.units import format_duration

_LONG_S = 600.0
_ABSURD_S = 3600.0


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """A lease above 10 min: warning; above 1 h: error."""
    for service in resolved.services:
        lease = service.given.engine.connector.lease
        if lease == "auto" or lease <= _LONG_S or not transfers_kv(service):
            continue
        yield Finding(
            f"`lease` {format_duration(lease)} exceeds {format_duration(_LONG_S)}; "
            "KV that nobody fetches would fill prefill's memory",
            at(service, "engine", "connector", "lease"),
            help="write `lease: auto`",
            severity=Severity.ERROR if lease > _ABSURD_S else Severity.WARNING,
        )


RULE = SpecRule(
    "DGC409",
    "lease-too-long",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/29906",
        "https://github.com/llm-d/llm-d/issues/1138",
    ),
    fails=(
        """
        services: {chat: {engine: {connector: {lease: 20min}}}}
        #                                             ^ DGC409 warning
        """,
        """
        services: {chat: {engine: {connector: {lease: 1000d}}}}
        #                                             ^ DGC409
        """,
    ),
    passes=("services: {chat: {engine: {connector: {lease: 5min}}}}",),
)
