"""A vLLM version with a known fault that matters here.

Versions are listed with what goes wrong and from which version on it is mended. Nothing in the spec can work around
them; another version can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, transfers_kv, version
from disaggc.rules.rule import Finding, SpecRule


@dataclass(frozen=True, slots=True)
class Advisory:
    """first <= version < fixed is affected; connectors: families it concerns."""

    first: tuple[int, int, int]
    fixed: tuple[int, int, int]
    connectors: tuple[str, ...]
    what: str
    source: str


ADVISORIES = (
    Advisory(
        (0, 27, 1),
        (0, 28, 0),
        ("nixl", "nixl-push"),
        "never frees expired KV behind a renewed lease, until prefill's memory is full",
        "https://github.com/vllm-project/vllm/issues/58222",
    ),
    Advisory(
        (0, 25, 0),
        (0, 27, 0),
        ("nixl",),
        "crashes decode on the first transfer after a prefill engine restarted",
        "https://github.com/vllm-project/vllm/issues/49238",
    ),
    Advisory(
        (0, 0, 0),
        (0, 22, 0),
        ("nixl",),
        "has no leases: KV that nobody fetches stays for a fixed 480 s unless the compiler shortens it",
        "vLLM 0.22: nixl connector, kv_lease_duration",
    ),
)


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Advisories whose range holds the pinned version and whose connector the service uses."""
    for service in resolved.services:
        for advisory in ADVISORIES:
            affected = advisory.first <= version(service) < advisory.fixed
            uses = service.given.engine.connector.type in advisory.connectors and transfers_kv(service)
            if affected and uses:
                fixed = ".".join(map(str, advisory.fixed))
                yield Finding(
                    f"`vllm` {service.given.engine.vllm} {advisory.what}",
                    at(service, "engine", "vllm"),
                    help=f"pin {fixed} or newer",
                    notes=(advisory.source,),
                )


RULE = SpecRule(
    "DGC222",
    "engine-advisory",
    Severity.WARNING,
    check,
    sources=tuple(advisory.source for advisory in ADVISORIES),
    fails=(
        """
        services: {chat: {engine: {vllm: 0.27.1}}}
        #                                ^ DGC204
        #                                ^ DGC222
        """,
    ),
    passes=("services: {chat: {engine: {vllm: 0.33.0}}}",),
)
