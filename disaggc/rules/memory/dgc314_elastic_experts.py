"""Elastic expert parallelism without what it needs.

`enable-elastic-ep` resizes a running expert group: it needs expert load balancing and a single pipeline stage.
While it resizes, the engine answers 503 to everything, metrics included, so a disaggc rollout and it would fight.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import choices, effective, flags_named
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`enable-elastic-ep` without `enable-eplb`, or where only pipeline-parallel shapes are allowed."""
    for service in resolved.services:
        for given in flags_named(service, "enable-elastic-ep"):
            if not given.on:
                continue
            for role in given.roles:
                eplb = effective(service, role).get("enable-eplb")
                stages = choices(service, role).pp
                if eplb is None or not eplb.on:
                    lack, way_out = "`enable-eplb`", "write `enable-eplb: true`"
                elif stages and min(stages) > 1:
                    lack, way_out = (
                        f"one pipeline stage, `pp` is {list(stages)}",
                        f"write `constraints.{role}.pp: [1]`",
                    )
                else:
                    continue
                yield Finding(f"`enable-elastic-ep` needs {lack} on {role}", given.path, help=way_out)
                break


RULE = SpecRule(
    "DGC314",
    "elastic-experts",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/parallel.py:974-1049",),
    fails=(
        """
        services: {chat: {engine: {settings: {enable-elastic-ep: true}}}}
        #                                                        ^ DGC314
        """,
    ),
    passes=("services: {chat: {engine: {settings: {enable-elastic-ep: false}}}}",),
)
