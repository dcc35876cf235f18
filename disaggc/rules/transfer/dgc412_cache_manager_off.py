"""The hybrid KV cache manager switched off for a model that needs it.

Models with sliding-window or linear layers keep far less KV with it. Without it a hybrid model fails at start and a
sliding-window model loses capacity that the memory plan counts on.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import LayerKind
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`disable-hybrid-kv-cache-manager` for models whose layers are not all full attention."""
    for service in resolved.services:
        kinds = set(service.model.layers) - {LayerKind.FULL}
        for given in flags_named(service, "disable-hybrid-kv-cache-manager"):
            if kinds and given.on:
                names = " and ".join(sorted(kind.value for kind in kinds))
                yield Finding(
                    f"`{given.written}` removes what {service.model.id} needs for its {names} layers",
                    given.path,
                    help="remove it",
                )


RULE = SpecRule(
    "DGC412",
    "cache-manager-off",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/vllm.py:2257-2291", "https://github.com/vllm-project/vllm/issues/41830"),
    fails=(
        """
        services:
          chat:
            model: {id: openai/gpt-oss-120b, weights: /models/oss}
            engine: {settings: {disable-hybrid-kv-cache-manager: true}}
        #                                                        ^ DGC412
        """,
    ),
    passes=("services: {chat: {engine: {settings: {disable-hybrid-kv-cache-manager: true}}}}",),
)
