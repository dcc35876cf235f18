"""A proxy port that target local needs for something else.

On target local every engine of the plan, whatever node it is on, has its ports on this one machine: 160 for each
device from `base_port` on, and the proxies' administration from 1000 below it. They end below 32768, where Linux
begins to give ports to outgoing connections.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import EPHEMERAL_PORTS
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.spec.model import LocalTarget

PER_DEVICE = 160
"""As the port planner gives them; a test holds the two together."""
ADMIN_BELOW = 1000


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """A `proxy.port` among those of engines or administration; devices whose ports would reach the ephemeral range."""
    if resolved.target != "local":
        return
    base = (resolved.spec.targets.local or LocalTarget()).base_port
    devices = sum(group.per_node * len(group.nodes) for group in resolved.groups)
    engines = range(base, base + devices * PER_DEVICE)
    admin = range(base - ADMIN_BELOW, base - ADMIN_BELOW + len(resolved.services))
    given = resolved.spec.targets.local is not None
    if engines.stop > EPHEMERAL_PORTS.start:
        yield Finding(
            f"`base_port` {base} with {devices} accelerators takes the ports up to {engines.stop - 1}, "
            f"those from {EPHEMERAL_PORTS.start} on are what Linux gives to connections",
            ("targets", "local", "base_port") if given else ("target",),
            help="write a smaller `targets.local.base_port`, or fewer nodes",
        )
    for service in resolved.services:
        port = service.given.proxy.port
        if port in engines or port in admin:
            whose = "engines" if port in engines else "administration"
            yield Finding(
                f"`proxy.port` {port} of {service.name} is one that target local gives to {whose}",
                at(service, "proxy", "port"),
                help="write another `port`, or another `targets.local.base_port`",
            )


RULE = SpecRule(
    "DGC622",
    "local-ports",
    Severity.ERROR,
    check,
    sources=("ip(7): ip_local_port_range",),
    fails=(
        """
        target: local
        targets: {local: {engine: sim, base_port: 9000}}
        services: {chat: {proxy: {port: 8000}}}
        #                               ^ DGC622
        """,
        """
        target: local
        targets: {local: {engine: sim, base_port: 30000}}
        #                                         ^ DGC622
        """,
    ),
    passes=(
        """
        target: local
        targets: {local: {engine: sim, base_port: 10000}}
        """,
    ),
    suppressible=False,
)
