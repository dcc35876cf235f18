"""Data parallelism of a dense model.

Data-parallel ranks of a dense model share nothing; vLLM rejects an external balancer over them and several nodes of
one group collided on one port. More replicas do the same with independent failures.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, written


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Listed dp degrees above 1 for a model without experts."""
    for service in resolved.services:
        if service.model.is_moe:
            continue
        for part in active_parts(service):
            for i, dp in enumerate(written(service, part).dp or ()):
                if dp > 1:
                    yield Finding(
                        f"`dp` {dp} needs a mixture-of-experts model, {service.model.id} is dense",
                        at(service, "constraints", part, "dp", i),
                        help="remove it; the solver adds replicas instead",
                    )


RULE = SpecRule(
    "DGC305",
    "dp-on-dense",
    Severity.ERROR,
    check,
    sources=(
        "vLLM 0.33: vllm/engine/arg_utils.py:2456-2465",
        "https://github.com/vllm-project/vllm/pull/39405",
    ),
    fails=(
        """
        services: {chat: {constraints: {decode: {dp: [1, 2]}}}}
        #                                                ^ DGC305
        """,
    ),
    passes=("services: {chat: {constraints: {decode: {dp: [1]}}}}",),
)
