"""Connector options that take the safety off.

`enforce_handshake_compat: false` lets engines of different versions, dtypes or models exchange KV: the answers are
wrong with HTTP 200. A pinned `engine_id` survives a restart, and decode keeps reading from the old process's
addresses.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_CONNECTOR_OPTIONS
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Options the compiler owns, and the handshake switched off."""
    for service in resolved.services:
        if not transfers_kv(service):
            continue
        for key, value in service.given.engine.connector.options.items():
            place = at(service, "engine", "connector", "options", key)
            if key in OWNED_CONNECTOR_OPTIONS:
                yield Finding(
                    f"`{key}` is decided by the compiler and cannot be set",
                    place,
                    help=OWNED_CONNECTOR_OPTIONS[key],
                    at_key=True,
                )
            elif key == "enforce_handshake_compat" and value is not True:
                yield Finding(
                    "`enforce_handshake_compat` switched off lets engines that do not match exchange KV; "
                    "answers would be wrong with HTTP 200",
                    place,
                    help="remove it",
                )


RULE = SpecRule(
    "DGC406",
    "forbidden-connector-option",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/metadata.py:146-216", "https://github.com/ray-project/ray/issues/65756"),
    fails=(
        """
        services: {chat: {engine: {connector: {options: {enforce_handshake_compat: false}}}}}
        #                                                                          ^ DGC406
        """,
        """
        services: {chat: {engine: {connector: {options: {engine_id: prefill-0}}}}}
        #                                                ^ DGC406
        """,
        """
        services: {chat: {engine: {connector: {options: {kv_lease_duration: 60}}}}}
        #                                                ^ DGC406
        """,
    ),
    passes=("services: {chat: {engine: {connector: {lease: 60s}}}}",),
    suppressible=False,
)
