"""An expert dispatcher that the accelerators do not have, or that vLLM replaces.

MoRI exists on AMD, NVLink dispatchers on NVIDIA. `naive` and `pplx` are replaced by the default with a warning in a
log.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import choices, flags_named
from disaggc.rules.rule import Finding, SpecRule

_AMD = ("mori",)
_NVIDIA = ("flashinfer", "moonep")
_REPLACED = ("naive", "pplx")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`all2all-backend` against the vendors of the groups the role may use."""
    for service in resolved.services:
        for given in flags_named(service, "all2all-backend"):
            name = str(given.value)
            groups = {group for role in given.roles for group in choices(service, role).groups}
            vendors = {g.accelerator.vendor for g in resolved.groups if g.name in groups}
            home = "amd" if name.startswith(_AMD) else "nvidia" if name.startswith(_NVIDIA) else None
            if home is not None and vendors and home not in vendors:
                yield Finding(
                    f"`all2all-backend` {name} exists on {home} accelerators only; engines would not start",
                    given.path,
                    help="write `all2all-backend: allgather_reducescatter`",
                )
            elif name in _REPLACED:
                yield Finding(
                    f"`all2all-backend` {name} is replaced by the default; only a log line says so",
                    given.path,
                    help="write `all2all-backend: allgather_reducescatter`",
                    severity=Severity.WARNING,
                )


RULE = SpecRule(
    "DGC324",
    "all2all-vendor",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: vllm/config/parallel.py:220",),
    fails=(
        """
        services: {chat: {engine: {settings: {all2all-backend: mori_low_latency}}}}
        #                                                      ^ DGC324
        """,
        """
        services: {chat: {engine: {settings: {all2all-backend: pplx}}}}
        #                                                      ^ DGC324 warning
        """,
    ),
    passes=("services: {chat: {engine: {settings: {all2all-backend: deepep_low_latency}}}}",),
)
