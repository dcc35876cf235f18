"""The convolution state of a hybrid model in a layout that cannot be moved.

NIXL moves recurrent state only in the layout DS; vLLM asserts it at start. The compiler sets it where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.pairing import NIXL
from disaggc.rules.given import env, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """VLLM_SSM_CONV_STATE_LAYOUT with another value than DS for a hybrid model over NIXL."""
    for service in resolved.services:
        hybrid = service.model.attention is Attention.HYBRID
        if not hybrid or service.given.engine.connector.type not in NIXL or not transfers_kv(service):
            continue
        for given in env(service):
            if given.name == "VLLM_SSM_CONV_STATE_LAYOUT" and given.value != "DS":
                yield Finding(
                    f"`{given.name}` {given.text} cannot be moved by NIXL, which needs DS for {service.model.id}",
                    given.path,
                    help="write `VLLM_SSM_CONV_STATE_LAYOUT: DS`, or remove it",
                )


RULE = SpecRule(
    "DGC411",
    "state-layout",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/base_worker.py:705, vllm/envs.py:1888",),
    fails=(
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-Next-80B-A3B-Instruct, weights: /models/next}
            engine: {env: {VLLM_SSM_CONV_STATE_LAYOUT: SD}}
        #                                              ^ DGC411
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-Next-80B-A3B-Instruct, weights: /models/next}
            engine: {env: {VLLM_SSM_CONV_STATE_LAYOUT: DS}}
        """,
    ),
    suppressible=False,
)
