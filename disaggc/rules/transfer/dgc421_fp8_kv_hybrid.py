"""8-bit KV of a hybrid model through a connector.

Scales and states of hybrid models travelled wrongly in several versions: engines report healthy and answers are
wrong. It needs a canary on the cluster before traffic.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`kv-cache-dtype` fp8 for a hybrid model that may be disaggregated."""
    for service in resolved.services:
        if service.model.attention is not Attention.HYBRID or not transfers_kv(service):
            continue
        for given in flags_named(service, "kv-cache-dtype"):
            if str(given.value).startswith("fp8"):
                yield Finding(
                    f"`kv-cache-dtype` {given.value} of a hybrid model has given wrong answers through connectors",
                    given.path,
                    help="write `kv-cache-dtype: auto`, or prove it with `disaggc smoke` before traffic",
                )


RULE = SpecRule(
    "DGC421",
    "fp8-kv-hybrid",
    Severity.WARNING,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/42179",
        "https://github.com/vllm-project/vllm/issues/44184",
    ),
    fails=(
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-Next-80B-A3B-Instruct, weights: /models/next}
            engine: {settings: {kv-cache-dtype: fp8}}
        #                                       ^ DGC421
        """,
    ),
    passes=("services: {chat: {engine: {settings: {kv-cache-dtype: fp8}}}}",),
)
