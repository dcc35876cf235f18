"""A KV precision that disaggc cannot size.

KV memory, transfer time and the number of sequences follow from the bytes of one KV element. An unknown name is
counted as 16 bits; vLLM refuses a name it does not know either.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import flags_named
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.wording import listed
from disaggc.spec.near import nearest

_KNOWN = (
    "auto", "bfloat16", "float16", "half", "float32", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4",
    "fp4", "int8", "fp8_per_token_head", "int8_per_token_head",
)  # fmt: skip


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`kv-cache-dtype` values that are not in the table of sizes."""
    for service in resolved.services:
        for given in flags_named(service, "kv-cache-dtype"):
            name = given.value
            if not isinstance(name, str) or name in _KNOWN:
                continue
            close = nearest(name, _KNOWN)
            yield Finding(
                f"`kv-cache-dtype` {name[:40]!r} has no known size; KV would be counted as 16 bits for each element",
                given.path,
                help=f"write `{close}`" if close else f"write one of {listed(_KNOWN, most=20)}",
            )


RULE = SpecRule(
    "DGC328",
    "kv-dtype",
    Severity.WARNING,
    check,
    sources=("vLLM 0.33: vllm/config/cache.py:235",),
    fails=(
        """
        services: {chat: {engine: {settings: {kv-cache-dtype: fp8_e4m4}}}}
        #                                                     ^ DGC328
        """,
    ),
    passes=("services: {chat: {engine: {settings: {kv-cache-dtype: fp8_e4m3}}}}",),
)
