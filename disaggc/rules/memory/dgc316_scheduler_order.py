"""Scheduler limits that contradict each other.

A prompt longer than `max-model-len` never arrives, so a threshold above it never acts and vLLM refuses it. With
chunked prefill switched off, one step must hold a whole prompt, which the planned batch does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """long-prefill-token-threshold above max-model-len; enable-chunked-prefill switched off."""
    for service in resolved.services:
        for given in flags(service):
            if given.flag == "long-prefill-token-threshold" and isinstance(given.value, int):
                if given.value > service.max_model_len:
                    yield Finding(
                        f"`long-prefill-token-threshold` {given.value} exceeds `max-model-len` {service.max_model_len}",
                        given.path,
                        help=f"write at most {service.max_model_len}",
                    )
            elif given.flag == "enable-chunked-prefill" and given.off:
                yield Finding(
                    f"`{given.written}` switches chunked prefill off; every step would have to hold a prompt of "
                    f"`max-model-len` {service.max_model_len} tokens",
                    given.path,
                    help="remove it",
                )


RULE = SpecRule(
    "DGC316",
    "scheduler-order",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/scheduler.py:317-355",),
    fails=(
        """
        services: {chat: {engine: {settings: {long-prefill-token-threshold: 9000}}}}
        #                                                                   ^ DGC316
        """,
        """
        services: {chat: {engine: {decode: {settings: {no-enable-chunked-prefill: true}}}}}
        #                                                                         ^ DGC316
        """,
    ),
    passes=("services: {chat: {engine: {settings: {long-prefill-token-threshold: 4096}}}}",),
)
