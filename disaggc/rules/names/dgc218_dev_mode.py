"""Development endpoints opened on an engine.

`VLLM_SERVER_DEV_MODE=1` adds unauthenticated endpoints that put the engine to sleep, drop its cache or run code
paths meant for tests.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import env
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """VLLM_SERVER_DEV_MODE with any value but 0."""
    for service in resolved.services:
        for given in env(service):
            if given.name == "VLLM_SERVER_DEV_MODE" and given.value != "0":
                yield Finding(
                    "`VLLM_SERVER_DEV_MODE` opens unauthenticated endpoints that stop an engine or drop its cache",
                    given.path,
                    help="remove it",
                )


RULE = SpecRule(
    "DGC218",
    "dev-mode",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/envs.py:1468",),
    fails=(
        """
        services: {chat: {engine: {env: {VLLM_SERVER_DEV_MODE: "1"}}}}
        #                                                      ^ DGC218
        """,
    ),
    passes=('services: {chat: {engine: {env: {VLLM_SERVER_DEV_MODE: "0"}}}}',),
)
