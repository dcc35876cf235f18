"""Environment that prefill and decode must share.

KV layout, state layout and transports are chosen by the environment on each side; the handshake refuses different
layouts at the first request, and different transports fall back to TCP.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import effective_env, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

SHARED = ("VLLM_KV_CACHE_LAYOUT", "VLLM_SSM_CONV_STATE_LAYOUT", "VLLM_DISABLE_REQUEST_ID_RANDOMIZATION")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Variables of SHARED that the two roles see differently."""
    for service in resolved.services:
        if not transfers_kv(service):
            continue
        prefill, decode = effective_env(service, "prefill"), effective_env(service, "decode")
        for name in SHARED:
            p, d = prefill.get(name), decode.get(name)
            given = d if d is not None and len(d.roles) == 1 else p or d
            if given is None or (p is not None and d is not None and p.value == d.value):
                continue
            shown = [f"`{side.text}`" if side is not None else "unset" for side in (p, d)]
            yield Finding(
                f"`{name}` is {shown[0]} on prefill and {shown[1]} on decode; their KV would not fit together",
                given.path,
                help="write it once, under `engine.env`",
            )


RULE = SpecRule(
    "DGC402",
    "role-env-differs",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/envs.py:1879-1888; nixl/base_worker.py:2691-2979",),
    fails=(
        """
        services: {chat: {engine: {decode: {env: {VLLM_KV_CACHE_LAYOUT: HND}}}}}
        #                                                               ^ DGC402
        """,
    ),
    passes=("services: {chat: {engine: {env: {VLLM_KV_CACHE_LAYOUT: HND}}}}",),
    suppressible=False,
)
