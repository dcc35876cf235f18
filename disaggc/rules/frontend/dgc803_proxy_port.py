"""A proxy port that is not free.

The port planner gives engines and administration the ports 19000 to 31520. Above 32767 Linux hands ports to
outgoing connections, so a listener may find its own taken. Below 1024 a port needs privileges the proxy does not
have.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import EPHEMERAL_PORTS, OWNED_PORTS
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule

_PRIVILEGED = 1024


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`proxy.port` in the planner's range or below 1024: error; in the ephemeral range: warning."""
    for service in resolved.services:
        port = service.given.proxy.port
        severity = Severity.ERROR
        if port in OWNED_PORTS:
            why = f"lies in {OWNED_PORTS.start} to {OWNED_PORTS.stop - 1}, which the port planner gives to engines"
        elif port < _PRIVILEGED:
            why = f"lies below {_PRIVILEGED}, which needs privileges the proxy does not have"
        elif port in EPHEMERAL_PORTS:
            why = f"lies in {EPHEMERAL_PORTS.start} to {EPHEMERAL_PORTS.stop - 1}, from which connections take theirs"
            severity = Severity.WARNING
        else:
            continue
        yield Finding(
            f"`port` {port} {why}",
            at(service, "proxy", "port"),
            help="write e.g. `port: 8000`",
            severity=severity,
        )


RULE = SpecRule(
    "DGC803",
    "proxy-port",
    Severity.ERROR,
    check,
    sources=("ip(7): ip_local_port_range", "https://github.com/vllm-project/vllm/issues/39015"),
    fails=(
        """
        services: {chat: {proxy: {port: 20000}}}
        #                               ^ DGC803
        """,
        """
        services: {chat: {proxy: {port: 443}}}
        #                               ^ DGC803
        """,
        """
        services: {chat: {proxy: {port: 40000}}}
        #                               ^ DGC803 warning
        """,
    ),
    passes=("services: {chat: {proxy: {port: 8443}}}",),
    suppressible=False,
)
