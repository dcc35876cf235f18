"""Quantised KV with dynamic scales through a connector.

Scales that an engine computes while running stay with the engine; only static scales reach the other side.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

_DYNAMIC = ("fp8_per_token_head", "int8_per_token_head", "fp8_inc", "per_token")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`kv-cache-dtype` values with per-token scales, or `calculate-kv-scales`, where KV may move."""
    for service in resolved.services:
        if not transfers_kv(service):
            continue
        for given in flags_named(service, "kv-cache-dtype", "calculate-kv-scales"):
            dynamic = given.flag == "calculate-kv-scales" and given.on
            if dynamic or any(part in str(given.value) for part in _DYNAMIC):
                yield Finding(
                    f"`{given.written}` keeps scales inside each engine; KV that moves would be read with others",
                    given.path,
                    help="write `kv-cache-dtype: fp8` or `auto`",
                )


RULE = SpecRule(
    "DGC430",
    "dynamic-kv-scales",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: NIXL connector, quantised KV needs static scales",),
    fails=(
        """
        services: {chat: {engine: {vllm: 0.21.0, settings: {calculate-kv-scales: true}}}}
        #                                                                        ^ DGC430
        #                                ^ DGC222
        """,
    ),
    passes=("services: {chat: {engine: {settings: {kv-cache-dtype: fp8}}}}",),
)
