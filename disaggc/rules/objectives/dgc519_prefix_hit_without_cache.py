"""Prefix hits counted on with the prefix cache switched off.

`prefix_hit` takes prompt tokens out of the prefill load. With the cache off every token is computed, and prefill is
planned too small by just that share.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Label, Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at, flags_named
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """A class with `prefix_hit` above 0 while `enable-prefix-caching` is switched off for prefill."""
    for service in resolved.services:
        off = [g for g in flags_named(service, "enable-prefix-caching") if g.off and "prefill" in g.roles]
        if not off:
            continue
        for load in service.classes:
            if load.prefix_hit > 0:
                yield Finding(
                    f"`prefix_hit` {load.prefix_hit:.0%} counts on a cache that `{off[0].written}` switches off",
                    at(service, "workload", load.name, "prefix_hit"),
                    help=f"remove `{off[0].written}`, or write `prefix_hit: 0%`",
                    labels=(Label(off[0].path, "switched off here"),),
                )


RULE = SpecRule(
    "DGC519",
    "prefix-hit-without-cache",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/engine/arg_utils.py:598",),
    fails=(
        """
        services:
          chat:
            engine: {settings: {no-enable-prefix-caching: true}}
            workload: {talk: {prefix_hit: 40%}}
        #                                 ^ DGC519
        """,
    ),
    passes=("services: {chat: {workload: {talk: {prefix_hit: 40%}}}}",),
)
