"""An engine that ignores mistyped variables.

Without `--fail-on-environ-validation` vLLM only logs an unknown VLLM_ name, and its default holds for weeks.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import argument, replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Replicas without the flag."""
    for service, _, replica in replicas(planned.plan):
        if argument(replica, "fail-on-environ-validation") is None:
            yield Finding(f"{replica.address} lacks `--fail-on-environ-validation`", service_path(service))


RULE = PlanRule(
    "DGC632",
    "unchecked-environment",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/engine/arg_utils.py:871",),
    fails=((Edit("services/chat/pools/decode/replicas/0/arguments/--fail-on-environ-validation", None),),),
)
