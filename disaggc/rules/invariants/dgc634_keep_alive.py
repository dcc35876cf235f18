"""Engines that close connections before the proxy does.

The proxy keeps idle connections to the engines. When an engine closes one first, a request that is just being sent
on it is lost: a sporadic 502.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import env_number, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_VLLM_DEFAULT_S = 5.0


def check(planned: Planned) -> Iterator[Finding]:
    """VLLM_HTTP_TIMEOUT_KEEP_ALIVE (5 s when unset) above the proxy's idle time."""
    for service, _, replica in replicas(planned.plan):
        keep = env_number(replica, "VLLM_HTTP_TIMEOUT_KEEP_ALIVE") or _VLLM_DEFAULT_S
        if keep <= service.proxy.idle_s:
            yield Finding(
                f"{replica.address} closes idle connections after {keep:g} s, the proxy keeps them for "
                f"{service.proxy.idle_s} s",
                service_path(service),
            )


RULE = PlanRule(
    "DGC634",
    "keep-alive",
    Severity.ERROR,
    check,
    sources=("https://github.com/llm-d/llm-d/issues/1564",),
    fails=((Edit("services/chat/pools/decode/replicas/0/env/VLLM_HTTP_TIMEOUT_KEEP_ALIVE", None),),),
)
