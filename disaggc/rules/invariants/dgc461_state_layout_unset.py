"""A hybrid model whose state layout NIXL cannot move.

NIXL needs the convolution state in layout DS; vLLM asserts it at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.rules.planned import env_value, moves_kv, replicas, resolved_service, service_path, text
from disaggc.rules.rule import Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Replicas of hybrid models over NIXL without VLLM_SSM_CONV_STATE_LAYOUT=DS."""
    for service, pool, replica in replicas(planned.plan):
        resolved = resolved_service(planned, service)
        nixl = service.connector is not None and service.connector.type in ("nixl", "nixl-push")
        hybrid = resolved is not None and resolved.model.attention is Attention.HYBRID
        if nixl and hybrid and moves_kv(pool):
            layout = text(env_value(replica, "VLLM_SSM_CONV_STATE_LAYOUT"))
            if layout != "DS":
                yield Finding(
                    f"{replica.address} has state layout {layout or 'unset'}, NIXL moves DS only",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC461",
    "state-layout-unset",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/base_worker.py:705",),
    fails=(),
)
