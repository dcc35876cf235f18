"""A memory share for one role only.

The memory plan counts with one `gpu-memory-utilization` for a service. A role with another share would hold more or
fewer sequences than it is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`gpu-memory-utilization` under `prefill` or `decode` with another value than the service's."""
    for service in resolved.services:
        for given in flags_named(service, "gpu-memory-utilization"):
            if len(given.roles) == 1 and given.value != service.utilisation:
                yield Finding(
                    f"`{given.written}` {given.value} of {given.roles[0]} differs from the "
                    f"{service.utilisation:g} that memory is planned with",
                    given.path,
                    help="write it once, under `engine.settings`",
                )


RULE = SpecRule(
    "DGC311",
    "role-memory-share",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: v1/worker/gpu_worker.py:641-820",),
    fails=(
        """
        services: {chat: {engine: {decode: {settings: {gpu-memory-utilization: 0.8}}}}}
        #                                                                      ^ DGC311
        """,
    ),
    passes=("services: {chat: {engine: {settings: {gpu-memory-utilization: 0.8}}}}",),
)
