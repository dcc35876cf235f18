"""Data-parallel ranks that do not add up.

The ranks of a group must cover 0 to N-1 exactly once, with one way of balancing between them; a gap hangs the
start, an overlap crashes it. A dense model runs independent replicas instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import NodeRank, Pool, Replica
from disaggc.rules.planned import argument, flag_number, replicas, resolved_service, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_BALANCERS = ("data-parallel-hybrid-lb", "data-parallel-external-lb", "data-parallel-multi-port-external-lb")


def check(planned: Planned) -> Iterator[Finding]:
    """Declared size against the shape, local ranks times nodes, start ranks, balancers, dense models."""
    for service, pool, replica in replicas(planned.plan):
        resolved = resolved_service(planned, service)
        if pool.shape.dp > 1 and resolved is not None and not resolved.model.is_moe:
            yield Finding(
                f"{replica.address} has dp {pool.shape.dp} for a dense model", service_path(service)
            )
        for problem in _problems(pool, replica):
            yield Finding(f"{replica.address} {problem}", service_path(service))


def _problems(pool: Pool, replica: Replica) -> Iterator[str]:
    dp, nodes = pool.shape.dp, len(replica.slots)
    size = flag_number(replica, "data-parallel-size") or 1
    if size != dp:
        yield f"declares {size:g} data-parallel ranks, its shape has {dp}"
    local = flag_number(replica, "data-parallel-size-local")
    if dp > 1 and local is not None and local * nodes != dp:
        yield f"has {local:g} ranks on each of {nodes} nodes, which cover {local * nodes:g} of {dp}"
    start = argument(replica, "data-parallel-start-rank")
    if (
        start is not None
        and isinstance(start.value, NodeRank)
        and local is not None
        and start.value.times != local
    ):
        yield f"starts ranks {start.value.times} apart with {local:g} on each node"
    modes = [name for name in _BALANCERS if argument(replica, name) is not None]
    if len(modes) > 1:
        yield f"balances in {len(modes)} ways at once: {', '.join(modes)}"


RULE = PlanRule(
    "DGC333",
    "data-parallel-ranks",
    Severity.ERROR,
    check,
    sources=(
        "vLLM 0.33: vllm/engine/arg_utils.py:2456-2525",
        "https://github.com/ray-project/ray/issues/57757",
    ),
    fails=((Edit("services/chat/pools/decode/replicas/0/arguments/--data-parallel-size", "2"),),),
)
