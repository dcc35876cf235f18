"""A memory share outside what an engine can take.

`gpu-memory-utilization` is the share of physical memory the engine plans for. Above 0.97 the driver's own memory no
longer fits beside it and the start fails; below a half most of the hardware is paid for and not used.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named
from disaggc.rules.rule import Finding, SpecRule

_MOST = 0.97
_LEAST = 0.5


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Values outside (0, 1]: error; above 0.97 or below 0.5: warning."""
    for service in resolved.services:
        for given in flags_named(service, "gpu-memory-utilization"):
            share = given.value
            if not isinstance(share, int | float) or isinstance(share, bool) or _LEAST <= share <= _MOST:
                continue
            impossible = not 0 < share <= 1
            consequence = (
                "the engine would refuse to start"
                if impossible
                else "the engine may not start beside the driver's memory"
                if share > _MOST
                else "most memory stays unused"
            )
            yield Finding(
                f"`gpu-memory-utilization` {share:g} is outside {_LEAST} to {_MOST}; {consequence}",
                given.path,
                help="write e.g. `gpu-memory-utilization: 0.92`",
                severity=Severity.ERROR if impossible else Severity.WARNING,
            )


RULE = SpecRule(
    "DGC320",
    "memory-share",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/cache.py:215, v1/worker/utils.py:716-766",),
    fails=(
        """
        services: {chat: {engine: {settings: {gpu-memory-utilization: 92.0}}}}
        #                                                             ^ DGC320
        """,
        """
        services: {chat: {engine: {settings: {gpu-memory-utilization: 0.99}}}}
        #                                                             ^ DGC320 warning
        """,
    ),
    passes=("services: {chat: {engine: {settings: {gpu-memory-utilization: 0.9}}}}",),
)
