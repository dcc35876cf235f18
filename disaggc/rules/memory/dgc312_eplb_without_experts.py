"""Expert load balancing without expert parallelism.

`enable-eplb` moves whole experts between ranks, so it needs experts that are placed whole on more than one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import choices, flags_named
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`enable-eplb` for a dense model, or for a role whose constraints do not place experts whole."""
    for service in resolved.services:
        for given in flags_named(service, "enable-eplb"):
            if not given.on:
                continue
            if not service.model.is_moe:
                yield Finding(
                    f"`enable-eplb` needs a mixture-of-experts model, {service.model.id} is dense",
                    given.path,
                    help="remove it",
                )
                continue
            missing = [role for role in given.roles if choices(service, role).expert_parallel is not True]
            if missing:
                yield Finding(
                    f"`enable-eplb` needs expert parallelism, which {' and '.join(missing)} may be planned without",
                    given.path,
                    help="write "
                    + " and ".join(f"`constraints.{role}.expert_parallel: true`" for role in missing),
                )


RULE = SpecRule(
    "DGC312",
    "eplb-without-experts",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/parallel.py, enable_eplb",),
    fails=(
        """
        services: {chat: {engine: {settings: {enable-eplb: true}}}}
        #                                                  ^ DGC312
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-235B-A22B, weights: /models/qwen}
            constraints: {prefill: {expert_parallel: true}, decode: {expert_parallel: true}}
            engine: {settings: {enable-eplb: true}}
        """,
    ),
)
