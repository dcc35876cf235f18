"""A KV block size that the attention backend does not take.

MLA backends on NVIDIA work on blocks of 32, 64 or 128 tokens; vLLM raises a smaller one on its own, on each engine
separately, and the planned memory and the transfer unit no longer hold.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named
from disaggc.rules.rule import Finding, SpecRule

_MLA = (32, 64, 128)


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """MLA on NVIDIA with another block size than its backends have; any model with one that is no power of two."""
    for service in resolved.services:
        names = {*service.prefill.groups, *service.decode.groups, *service.colocated.groups}
        nvidia = any(g.accelerator.vendor == "nvidia" for g in resolved.groups if g.name in names)
        for given in flags_named(service, "block-size"):
            size = given.value
            if not isinstance(size, int) or isinstance(size, bool):
                continue
            if service.model.attention is Attention.MLA and nvidia and size not in _MLA:
                yield Finding(
                    f"`block-size` {size} is not one of {', '.join(map(str, _MLA))} that MLA backends on NVIDIA take",
                    given.path,
                    help="write `block-size: 64`, or leave it to the compiler",
                )
            elif size < 1 or size & (size - 1):
                yield Finding(
                    f"`block-size` {size} is not a power of two; no attention backend takes it",
                    given.path,
                    help="write `block-size: 16`, or leave it to the compiler",
                )


RULE = SpecRule(
    "DGC321",
    "block-size",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: attention backends' supported kernel block sizes",),
    fails=(
        """
        services: {chat: {engine: {settings: {block-size: 24}}}}
        #                                                 ^ DGC321
        """,
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}
            engine: {settings: {block-size: 16}}
        #                                   ^ DGC321
        """,
    ),
    passes=("services: {chat: {engine: {settings: {block-size: 32}}}}",),
)
