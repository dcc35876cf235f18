"""Prefill memory that leases fill.

KV that waits to be fetched takes room on prefill. When it leaves no room for one more prompt of full length,
prefill stands still until leases end.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Role
from disaggc.rules.planned import service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Leased tokens plus one context against the KV of a prefill engine."""
    for service in planned.plan.services:
        for pool in service.pools:
            memory = pool.memory
            if (
                pool.role is Role.PREFILL
                and memory.leased_tokens + service.model.max_model_len > memory.kv_tokens_high
            ):
                yield Finding(
                    f"{pool.address} keeps {memory.leased_tokens} tokens for decode to fetch and holds "
                    f"{memory.kv_tokens_high}; a prompt of {service.model.max_model_len} would not fit beside them",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC335",
    "leased-kv",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/29906",
        "https://github.com/llm-d/llm-d/issues/1138",
    ),
    fails=((Edit("services/chat/pools/prefill/memory/leased_tokens", 1000000000),),),
)
