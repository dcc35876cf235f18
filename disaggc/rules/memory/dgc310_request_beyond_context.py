"""Requests that are longer than the context.

An engine answers a request whose prompt and output exceed `max-model-len` with an error. When the mean request is
already too long the service cannot work; when only the tail is, a part of the traffic fails.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import class_loads, load_path
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Per class: mean input plus mean output above max-model-len (error), or the 99th percentiles (warning)."""
    for service, load, scenario in class_loads(resolved):
        limit = service.max_model_len
        mean, tail = load.isl.mean + load.osl.mean, load.isl.p99 + load.osl.p99
        if tail <= limit:
            continue
        hopeless = mean > limit
        what = (
            f"on average {mean:,.0f} tokens long (input plus output)"
            if hopeless
            else f"up to {tail:,.0f} tokens long (99th percentiles of input and output)"
        )
        yield Finding(
            f"`{load.name}` requests are {what}, `max-model-len` is {limit:,}; longer ones are refused",
            load_path(service, load, scenario, "input_tokens"),
            help=f"write `engine.settings.max-model-len: {_round(tail)}` or shorten the class",
            severity=Severity.ERROR if hopeless else Severity.WARNING,
        )


def _round(tokens: float) -> int:
    return -(-int(tokens + 1) // 1024) * 1024


RULE = SpecRule(
    "DGC310",
    "request-beyond-context",
    Severity.ERROR,
    check,
    sources=("https://github.com/SemiAnalysisAI/InferenceX/pull/2257",),
    fails=(
        """
        services: {chat: {workload: {talk: {input_tokens: 9000}}}}
        #                                                 ^ DGC310
        """,
        """
        services: {chat: {workload: {talk: {input_tokens: {mean: 1000, p50: 500, p90: 4000, p99: 8100}}}}}
        #                                                 ^ DGC310 warning
        """,
        """
        scenarios: {long: {services.chat.workload.talk.input_tokens: 9000}}
        #                 ^ DGC310
        """,
    ),
    passes=(
        "services: {chat: {workload: {talk: {input_tokens: 4000}}}}",
        "scenarios: {long: {services.chat.workload.talk.input_tokens: 7000}}",
    ),
)
