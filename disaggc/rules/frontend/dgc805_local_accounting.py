"""Several proxies that each count only their own requests.

`least-work` decides by what this proxy has sent. With several proxies each sees a share of the load, and all would run
to the replica that looks idlest: so they draw two and take the better one, as `power-of-two` does. Affinity and round
robin need no shared load and stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """More than one proxy replica with the policy least-work."""
    for service in resolved.services:
        proxy = service.given.proxy
        if proxy.replicas > 1 and proxy.policy == "least-work":
            yield Finding(
                f"`replicas` {proxy.replicas} of the proxy each see only their own share of the load, "
                "so `least-work` is `power-of-two` there",
                at(service, "proxy", "replicas"),
                help="write `policy: power-of-two`",
            )


RULE = SpecRule(
    "DGC805",
    "local-accounting",
    Severity.NOTE,
    check,
    sources=(
        "field reports on routers with local token accounting (deployment reference, misconfiguration 14)",
    ),
    fails=(
        """
        services: {chat: {proxy: {replicas: 2}}}
        #                                   ^ DGC805
        """,
    ),
    passes=("services: {chat: {proxy: {replicas: 2, policy: power-of-two}}}",),
)
