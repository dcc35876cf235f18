"""A context longer than the model's positions, or left to each engine.

vLLM refuses `--max-model-len` above the model's own limit at start, unless the positions are scaled by a setting.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import env, flags_named
from disaggc.rules.rule import Finding, SpecRule

_AUTOMATIC = ("auto", -1, 0)


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`max-model-len` above the positions (unless scaled or permitted), or left to the engine."""
    for service in resolved.services:
        limit = service.model.max_position
        scaled = any(flags_named(service, "hf-overrides", "rope-scaling")) or any(
            given.name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN" and given.text == "1" for given in env(service)
        )
        for given in flags_named(service, "max-model-len"):
            value = given.value
            if value in _AUTOMATIC and not isinstance(value, bool):
                yield Finding(
                    f"`max-model-len` {value} lets each engine choose; prefill, decode and the proxy must agree on one",
                    given.path,
                    help=f"write a number, or leave it out: the compiler then writes {service.max_model_len}",
                )
            elif isinstance(value, int) and not scaled and limit and value > limit:
                yield Finding(
                    f"`max-model-len` {value} exceeds the {limit} positions of {service.model.id}; "
                    "the engine would refuse to start",
                    given.path,
                    help=f"write at most `max-model-len: {limit}`",
                )


RULE = SpecRule(
    "DGC309",
    "context-above-model",
    Severity.ERROR,
    check,
    sources=("vLLM: ModelConfig._get_and_verify_max_len",),
    fails=(
        """
        services: {chat: {engine: {settings: {max-model-len: 500000}}}}
        #                                                    ^ DGC309
        """,
        """
        services: {chat: {engine: {settings: {max-model-len: -1}}}}
        #                                                    ^ DGC309
        """,
    ),
    passes=("services: {chat: {engine: {settings: {max-model-len: 32768}}}}",),
)
