"""Expert parallelism of a model without experts.

vLLM refuses `--enable-expert-parallel` for a dense model at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, written


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`expert_parallel: true` for a dense model."""
    for service in resolved.services:
        for part in active_parts(service):
            if written(service, part).expert_parallel and not service.model.is_moe:
                yield Finding(
                    f"`expert_parallel` needs a mixture-of-experts model, {service.model.id} is dense",
                    at(service, "constraints", part, "expert_parallel"),
                    help="remove it",
                )


RULE = SpecRule(
    "DGC306",
    "ep-on-dense",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/model.py:1566",),
    fails=(
        """
        services: {chat: {constraints: {decode: {expert_parallel: true}}}}
        #                                                         ^ DGC306
        """,
    ),
    passes=("services: {chat: {constraints: {decode: {expert_parallel: false}}}}",),
)
