"""An engine that would choose its own sizes.

vLLM fills absent sizes by accelerator and version. Then prefill, decode, the proxy and the prediction each assume
something else, and an upgrade changes what runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import argument, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

PINNED = (
    "tensor-parallel-size",
    "pipeline-parallel-size",
    "max-model-len",
    "max-num-seqs",
    "max-num-batched-tokens",
    "block-size",
    "kv-cache-dtype",
)
_MEMORY = ("gpu-memory-utilization", "kv-cache-memory-bytes")


def check(planned: Planned) -> Iterator[Finding]:
    """Replicas without one of the PINNED flags, or without either memory flag."""
    for service, _, replica in replicas(planned.plan):
        absent = [f"--{name}" for name in PINNED if argument(replica, name) is None]
        if all(argument(replica, name) is None for name in _MEMORY):
            absent.append(f"--{_MEMORY[0]}")
        if absent:
            yield Finding(
                f"{replica.address} leaves {', '.join(absent)} to the engine, which chooses by accelerator and version",
                service_path(service),
            )


RULE = PlanRule(
    "DGC330",
    "sizes-not-pinned",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/engine/arg_utils.py:2940-3039",),
    fails=(
        (Edit("services/chat/pools/decode/replicas/0/arguments/--block-size", None),),
        (Edit("services/chat/pools/prefill/replicas/0/arguments/--gpu-memory-utilization", None),),
    ),
)
