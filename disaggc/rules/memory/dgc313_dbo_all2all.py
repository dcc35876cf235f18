"""Dual batch overlap with an all-to-all backend that cannot overlap.

`enable-dbo` hides expert dispatch behind compute and works only with the DeepEP and NIXL dispatchers (on ROCm with
the default one too). vLLM refuses to start otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.rules.given import effective, flags_named
from disaggc.rules.rule import Finding, SpecRule

_OVERLAPPING = frozenset({"deepep_low_latency", "deepep_high_throughput", "nixl_ep"})
_DEFAULT = "allgather_reducescatter"


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`enable-dbo` for a role whose all2all backend is not one of the overlapping ones."""
    for service in resolved.services:
        allowed = _OVERLAPPING | ({_DEFAULT} if _rocm_only(resolved, service) else set())
        for given in flags_named(service, "enable-dbo"):
            if not given.on:
                continue
            for role in given.roles:
                backend = effective(service, role).get("all2all-backend")
                name = str(backend.value) if backend is not None else _DEFAULT
                if name not in allowed:
                    yield Finding(
                        f"`enable-dbo` cannot overlap `all2all-backend` {name}; {role} engines would refuse to start",
                        given.path,
                        help="write `all2all-backend: deepep_low_latency` (prefill: `deepep_high_throughput`)",
                    )
                    break


def _rocm_only(resolved: ResolvedSpec, service: ResolvedService) -> bool:
    names = set(service.prefill.groups) | set(service.decode.groups)
    return all(group.accelerator.vendor == "amd" for group in resolved.groups if group.name in names)


RULE = SpecRule(
    "DGC313",
    "dbo-all2all",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/vllm.py:2180-2207",),
    fails=(
        """
        services: {chat: {engine: {settings: {enable-dbo: true}}}}
        #                                                 ^ DGC313
        """,
    ),
    passes=(
        "services: {chat: {engine: {settings: {enable-dbo: true, all2all-backend: deepep_low_latency}}}}",
    ),
)
