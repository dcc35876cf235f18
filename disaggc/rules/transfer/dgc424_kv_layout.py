"""A KV layout that cannot be re-sharded.

When prefill and decode have different tensor parallelism, each reads a part of the other's heads. That works only
in a layout whose heads lie together (LBHNC, formerly HND); with another one the pair is refused at the first
request.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.resolve.pairing import NIXL
from disaggc.rules.given import env, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

_TOGETHER = ("LBHNC", "HND", "BLHNC")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """VLLM_KV_CACHE_LAYOUT with another layout while the roles' tp may differ, over NIXL, without MLA."""
    for service in resolved.services:
        exempt = service.model.attention is Attention.MLA or service.given.engine.connector.type not in NIXL
        if exempt or not transfers_kv(service) or _equal_tp(service):
            continue
        for given in env(service):
            if given.name == "VLLM_KV_CACHE_LAYOUT" and given.text and given.text not in _TOGETHER:
                yield Finding(
                    f"`VLLM_KV_CACHE_LAYOUT` {given.text[:20]} cannot be re-sharded, and prefill and decode may have "
                    "different tp",
                    given.path,
                    help="remove it, or write the same single `tp` for both roles",
                )


def _equal_tp(service: ResolvedService) -> bool:
    prefill, decode = service.prefill.tp, service.decode.tp
    return prefill is not None and decode is not None and len({*prefill, *decode}) == 1


RULE = SpecRule(
    "DGC424",
    "kv-layout",
    Severity.WARNING,
    check,
    sources=("vLLM 0.33: nixl/base_worker.py:2691-2979, vllm/envs.py:1879",),
    fails=(
        """
        services: {chat: {engine: {env: {VLLM_KV_CACHE_LAYOUT: NHD}}}}
        #                                                      ^ DGC424
        """,
    ),
    passes=("services: {chat: {engine: {env: {VLLM_KV_CACHE_LAYOUT: HND}}}}",),
)
