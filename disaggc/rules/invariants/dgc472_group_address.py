"""Nodes of one engine that cannot find each other.

The ranks of an engine over several nodes meet at the first node's address. `localhost`, or nothing, leaves every
node waiting for itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import LeaderAddress, Replica
from disaggc.rules.planned import argument, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule

_MEETING = ("master-addr", "data-parallel-address")


def check(planned: Planned) -> Iterator[Finding]:
    """Replicas over several nodes: one meeting address, the leader's; ranks of slots 0 to n-1 in order."""
    for service, _, replica in replicas(planned.plan):
        problem = _problem(replica)
        if problem is not None:
            yield Finding(f"{replica.address} {problem}", service_path(service))


def _problem(replica: Replica) -> str | None:
    if [slot.rank for slot in replica.slots] != list(range(len(replica.slots))):
        return f"has node ranks {[slot.rank for slot in replica.slots]}, wanted 0 to {len(replica.slots) - 1}"
    if len(replica.slots) < 2:
        return None
    given = [found for name in _MEETING if (found := argument(replica, name)) is not None]
    if not given:
        return f"spans {len(replica.slots)} nodes and names no address where they meet"
    wrong = [found.flag for found in given if not isinstance(found.value, LeaderAddress)]
    return f"lets its nodes meet at another address than the first node's ({wrong[0]})" if wrong else None


RULE = PlanRule(
    "DGC472",
    "group-address",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/parallel.py:317", "https://github.com/vllm-project/vllm/pull/39405"),
    fails=((Edit("services/chat/pools/decode/replicas/0/slots/0/rank", 1),),),
)
