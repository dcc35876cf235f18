"""A flag that vLLM had once and has no longer.

Recipes on the web outlive the flags they use. vLLM refuses to start on a flag it does not know.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Settings of the removal table that the pinned version does not know."""
    for service in resolved.services:
        for given in flags(service):
            reason = (service.snapshot.removed_flags or {}).get(given.flag)
            if given.facts is None and reason is not None:
                yield Finding(
                    f"`{given.written}` is no flag of vLLM {service.given.engine.vllm} any more; "
                    "every engine would refuse to start",
                    given.path,
                    help=f"remove it: {reason}",
                    at_key=True,
                )


RULE = SpecRule(
    "DGC211",
    "removed-flag",
    Severity.ERROR,
    check,
    sources=(
        "vLLM: flags of 0.21.0 and 0.33.0 compared",
        "https://github.com/vllm-project/vllm/issues/11490",
    ),
    fails=(
        """
        services: {chat: {engine: {settings: {swap-space: 4}}}}
        #                                     ^ DGC211
        """,
    ),
    passes=("services: {chat: {engine: {settings: {long-prefill-token-threshold: 2048}}}}",),
)
