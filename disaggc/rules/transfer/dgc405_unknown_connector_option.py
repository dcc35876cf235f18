"""A connector option that the pinned vLLM does not read.

vLLM does not check these keys: a misspelt one is silently ignored and its default holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_CONNECTOR_OPTIONS
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.wording import listed
from disaggc.spec.near import nearest


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Option keys that no connector of the family reads in this version, nor the compiler owns."""
    for service in resolved.services:
        connector = service.given.engine.connector
        facts = [f for f in service.snapshot.connectors.values() if f.family == connector.type]
        known = {key for f in facts for key in f.option_keys}
        if not facts or not transfers_kv(service):
            continue
        for key in connector.options:
            if key in known or key in OWNED_CONNECTOR_OPTIONS:
                continue
            close = nearest(key, known)
            gone = (service.snapshot.removed_kv_transfer_keys or {}).get(key)
            way_out = f"write `{close}`" if close else f"known: {listed(sorted(known))}"
            yield Finding(
                f"`{key}` is not an option of the {connector.type} connector in vLLM {service.given.engine.vllm}; "
                "it would be ignored without a word",
                at(service, "engine", "connector", "options", key),
                help=f"remove it: {gone}" if gone else way_out,
                at_key=True,
            )


RULE = SpecRule(
    "DGC405",
    "unknown-connector-option",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/kv_transfer.py (kv_connector_extra_config is not checked)",),
    fails=(
        """
        services: {chat: {engine: {connector: {options: {num_thread: 8}}}}}
        #                                                ^ DGC405
        """,
        """
        services: {chat: {engine: {connector: {options: {kv_rank: 0}}}}}
        #                                                ^ DGC405
        """,
    ),
    passes=("services: {chat: {engine: {connector: {options: {num_threads: 8}}}}}",),
)
