"""Engine features that exclude a KV connector.

vLLM refuses to start with a connector together with routed-expert output or state replay; context-parallel decode
needs MLA.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

_EXCLUDED = ("enable-return-routed-experts", "use-replayssm")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Flags of _EXCLUDED switched on where the service may be disaggregated."""
    for service in resolved.services:
        if not transfers_kv(service):
            continue
        for given in flags_named(service, *_EXCLUDED):
            if given.on:
                yield Finding(
                    f"`{given.written}` cannot be combined with a KV connector; engines would refuse to start",
                    given.path,
                    help="remove it, or write `constraints.mode: colocated`",
                )


RULE = SpecRule(
    "DGC425",
    "feature-without-connector",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/vllm.py:1231-1244, 3541",),
    fails=(
        """
        services: {chat: {engine: {settings: {enable-return-routed-experts: true}}}}
        #                                                                   ^ DGC425
        """,
    ),
    passes=("services: {chat: {engine: {settings: {enable-return-routed-experts: false}}}}",),
)
