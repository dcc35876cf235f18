"""Sizes that contradict each other.

vLLM refuses fewer batched tokens than sequences; one sequence of the full context must fit into the KV of an
engine; and what the engine is told must be what the plan counted with.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import flag_number, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Batched < seqs; active > seqs; seqs other than planned; KV tokens below max-model-len."""
    for service, pool, replica in replicas(planned.plan):
        seqs, batched = flag_number(replica, "max-num-seqs"), flag_number(replica, "max-num-batched-tokens")
        context = flag_number(replica, "max-model-len")
        if seqs is not None and batched is not None and batched < seqs:
            yield Finding(
                f"{replica.address} batches {batched:g} tokens for {seqs:g} sequences; it would not start",
                service_path(service),
            )
        active = flag_number(replica, "max-num-active-seqs")
        if seqs is not None and active is not None and active > seqs:
            yield Finding(
                f"{replica.address} allows {active:g} active of {seqs:g} sequences; it would not start",
                service_path(service),
            )
        if seqs is not None and seqs != pool.memory.sequences:
            yield Finding(
                f"{replica.address} is told {seqs:g} sequences, the plan counts with {pool.memory.sequences}",
                service_path(service),
            )
        if context is not None and context > pool.memory.kv_tokens_high:
            yield Finding(
                f"{replica.address} holds at most {pool.memory.kv_tokens_high} tokens of KV, one sequence may have "
                f"{context:g}",
                service_path(service),
            )


RULE = PlanRule(
    "DGC331",
    "scheduler-sizes",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/scheduler.py:330, v1/core/kv_cache_planning.py:50-90",),
    fails=(
        (Edit("services/chat/pools/decode/replicas/0/arguments/--max-num-batched-tokens", "1"),),
        (Edit("services/chat/pools/decode/memory/sequences", 3),),
        (Edit("services/chat/pools/decode/replicas/0/arguments/--max-num-active-seqs", "1000000"),),
        (
            Edit("services/chat/pools/decode/memory/kv_tokens", 10),
            Edit("services/chat/pools/decode/memory/kv_tokens_high", 20),
        ),
    ),
)
