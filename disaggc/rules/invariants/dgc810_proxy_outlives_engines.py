"""A proxy that goes before its requests end.

The proxy carries every open stream. It must drain at least as long as the engines may, or a rollout of the proxy
cuts what the engines would have finished.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """`proxy.drain_s` against the shutdown time of every pool."""
    for service in planned.plan.services:
        longest = max((pool.timings.shutdown_s for pool in service.pools), default=0)
        if service.proxy.drain_s < longest:
            yield Finding(
                f"the proxy of {service.name} drains for {service.proxy.drain_s} s, engines for {longest} s",
                service_path(service),
            )


RULE = PlanRule(
    "DGC810",
    "proxy-outlives-engines",
    Severity.ERROR,
    check,
    sources=("https://github.com/kubernetes-sigs/gateway-api-inference-extension/issues/549",),
    fails=((Edit("services/chat/proxy/drain_s", 1),),),
)
