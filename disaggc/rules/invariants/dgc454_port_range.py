"""A listener where Linux takes ports for outgoing connections, or beyond the last port.

The port may be in use when the engine starts: a start that fails now and then.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.owned import EPHEMERAL_PORTS
from disaggc.rules.invariants.dgc453_ports_overlap import port_ranges
from disaggc.rules.planned import replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Engine ports within 32768 to 60999 or above 65535."""
    for service, _, replica in replicas(planned.plan):
        for name, ports in port_ranges(replica.ports):
            inside = ports.start < EPHEMERAL_PORTS.stop and ports.stop > EPHEMERAL_PORTS.start
            if inside or ports.stop > 65536:
                yield Finding(
                    f"{name} {ports.start} of {replica.address} lies where Linux gives ports to connections",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC454",
    "port-range",
    Severity.ERROR,
    check,
    sources=("ip(7): ip_local_port_range", "https://github.com/vllm-project/vllm/issues/39015"),
    fails=((Edit("services/chat/pools/decode/replicas/0/ports/internal", 40000),),),
)
