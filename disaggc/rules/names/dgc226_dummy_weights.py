"""Weights that are random numbers.

`load-format: dummy` starts an engine in seconds for speed tests. Its answers are noise with HTTP 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`load-format: dummy`."""
    for service in resolved.services:
        for given in flags_named(service, "load-format"):
            if given.value == "dummy":
                yield Finding(
                    "`load-format` dummy fills the weights with random numbers; answers would be noise with HTTP 200",
                    given.path,
                    help="remove it",
                )


RULE = SpecRule(
    "DGC226",
    "dummy-weights",
    Severity.WARNING,
    check,
    sources=("vLLM 0.33: vllm/config/load.py:30",),
    fails=(
        """
        services: {chat: {engine: {settings: {load-format: dummy}}}}
        #                                                  ^ DGC226
        """,
    ),
    passes=("services: {chat: {engine: {settings: {load-format: safetensors}}}}",),
)
