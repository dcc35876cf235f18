"""A VLLM_ variable that vLLM read once and reads no longer.

Set silently, it would do nothing: the flat NIXL abort timeout became a lease, the MoRIIO variables became connector
options.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_ENV
from disaggc.rules.given import env
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Names of the removal table that the pinned version does not know."""
    for service in resolved.services:
        for given in env(service):
            reason = (service.snapshot.removed_env or {}).get(given.name)
            if reason is None or given.name in OWNED_ENV:
                continue
            yield Finding(
                f"`{given.name}` is not read by vLLM {service.given.engine.vllm} any more",
                given.path,
                help=f"remove it: {reason}",
                at_key=True,
            )


RULE = SpecRule(
    "DGC216",
    "removed-env",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/envs.py; moriio_common.py:271",),
    fails=(
        """
        services: {chat: {engine: {env: {VLLM_RPC_TIMEOUT: '20000'}}}}
        #                                ^ DGC216
        """,
    ),
    passes=("services: {chat: {engine: {env: {VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS: '600'}}}}",),
)
