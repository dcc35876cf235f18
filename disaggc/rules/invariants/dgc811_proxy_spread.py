"""Proxies on one node.

Two instances on one host share its fate and want the same port. The plan spreads them.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """At least one instance, each on another node of the plan."""
    known = {node.name for node in planned.plan.nodes}
    for service in planned.plan.services:
        nodes = [instance.node for instance in service.proxy.instances]
        if not nodes:
            yield Finding(f"{service.name} has no proxy instance", service_path(service))
        for position, node in enumerate(nodes):
            if node in nodes[:position]:
                yield Finding(f"two proxies of {service.name} run on {node}", service_path(service))
            if node not in known:
                yield Finding(
                    f"a proxy of {service.name} runs on {node}, which the plan does not have",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC811",
    "proxy-spread",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=((Edit("services/chat/proxy/instances/0/node", "elsewhere"),),),
)
