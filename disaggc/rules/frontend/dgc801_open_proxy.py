"""A proxy without a key.

Whoever reaches the port can use the accelerators. Engines are kept private; the proxy is the one door.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`proxy.api_key` absent."""
    for service in resolved.services:
        if service.given.proxy.api_key is None:
            yield Finding(
                f"`proxy.api_key` is missing; whoever reaches port {service.given.proxy.port} may use the service",
                at(service, "proxy"),
                help="write e.g. `proxy: {api_key: {env: DISAGGC_API_KEY}}`",
                at_key=True,
            )


RULE = SpecRule(
    "DGC801",
    "open-proxy",
    Severity.WARNING,
    check,
    sources=("vLLM: only /v1 and a few other prefixes are guarded by its own key",),
    fails=(
        """
        services: {chat: {proxy: {api_key: null}}}
        #                 ^ DGC801
        """,
    ),
    passes=("services: {chat: {proxy: {api_key: {env: CHAT_KEY}}}}",),
)
