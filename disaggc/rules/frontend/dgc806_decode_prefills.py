"""Decode engines that take over prefill when it fails.

Under load a failing prefill engine then turns every decode engine into a slow prefill engine, and token latency
breaks for all; and as long as it lasts nobody sees that nothing is disaggregated.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`on_prefill_failure: decode-locally` together with a bound on token latency."""
    for service in resolved.services:
        bounded = any(bound.metric == "itl" for load in service.classes for bound in load.bounds)
        if service.given.proxy.on_prefill_failure == "decode-locally" and bounded and transfers_kv(service):
            yield Finding(
                "`on_prefill_failure` decode-locally gives up the bound on token latency when prefill fails",
                at(service, "proxy", "on_prefill_failure"),
                help="write `on_prefill_failure: retry` or `error`",
            )


RULE = SpecRule(
    "DGC806",
    "decode-prefills",
    Severity.WARNING,
    check,
    sources=(
        "https://github.com/llm-d/llm-d-router/issues/2427",
        "https://github.com/llm-d/llm-d-router/pull/1206",
    ),
    fails=(
        """
        services: {chat: {proxy: {on_prefill_failure: decode-locally}}}
        #                                             ^ DGC806
        """,
    ),
    passes=("services: {chat: {proxy: {on_prefill_failure: error}}}",),
)
