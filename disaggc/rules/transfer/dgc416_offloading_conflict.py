"""KV offloading that replaces the P/D connector.

`kv-offloading-size` makes vLLM overwrite `kv_connector` and set `kv_role` to `kv_both`: the engine starts, and
prefill and decode no longer exchange anything, with HTTP 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`kv-offloading-size` or `kv-offloading-backend` where the service may be disaggregated."""
    for service in resolved.services:
        if not transfers_kv(service):
            continue
        for given in flags_named(service, "kv-offloading-size"):
            if given.value is not None:
                yield Finding(
                    f"`{given.written}` overwrites the KV connector; no KV would move, with HTTP 200",
                    given.path,
                    help="remove it, or write `constraints.mode: colocated`",
                    at_key=True,
                )


RULE = SpecRule(
    "DGC416",
    "offloading-conflict",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/vllm.py:1151-1185",),
    fails=(
        """
        services: {chat: {engine: {settings: {kv-offloading-size: 64}}}}
        #                                     ^ DGC416
        """,
    ),
    passes=(
        "services: {chat: {constraints: {mode: colocated}, engine: {settings: {kv-offloading-size: 64}}}}",
    ),
    suppressible=False,
)
