"""Decode that recomputes a prompt when its KV does not arrive.

The answer is right and nobody notices that decode does prefill's work, until latency collapses under load; on some
runners the policy hung or gave wrong output. With `fail` the proxy retries on another pair.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`load_failure: recompute`."""
    for service in resolved.services:
        if service.given.engine.connector.load_failure == "recompute" and transfers_kv(service):
            yield Finding(
                "`load_failure` recompute hides failed transfers behind slow decode engines",
                at(service, "engine", "connector", "load_failure"),
                help="write `load_failure: fail`; the proxy retries",
            )


RULE = SpecRule(
    "DGC410",
    "recompute-on-failure",
    Severity.WARNING,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/45138",
        "https://github.com/vllm-project/vllm/issues/49250",
        "https://github.com/vllm-project/vllm/issues/34896",
    ),
    fails=(
        """
        services: {chat: {engine: {connector: {load_failure: recompute}}}}
        #                                                    ^ DGC410
        """,
    ),
    passes=("services: {chat: {engine: {connector: {load_failure: fail}}}}",),
)
