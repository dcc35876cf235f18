"""UCX transports that cannot reach accelerator memory.

`UCX_TLS` lists the only transports UCX may use. Without `cuda_copy` (NVIDIA) or `rocm_copy` (AMD) KV cannot leave
the accelerator and the first transfer fails. Left unset, the compiler writes a complete list.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import choices, env, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

_COPY = {"nvidia": ("cuda_copy", "cuda"), "amd": ("rocm_copy", "rocm"), "cpu": ()}


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Explicit UCX_TLS lists without the vendor's copy transport; `all` and exclusions (`^x`) have it."""
    for service in resolved.services:
        for given in env(service):
            if given.name != "UCX_TLS" or not given.text or not transfers_kv(service):
                continue
            names = {name.strip() for name in given.text.split(",")}
            if "all" in names or given.text.startswith("^"):
                continue
            groups = {name for role in given.roles for name in choices(service, role).groups}
            for vendor in sorted({g.accelerator.vendor for g in resolved.groups if g.name in groups}):
                wanted = _COPY[vendor]
                if wanted and not names & set(wanted):
                    yield Finding(
                        f"`UCX_TLS` {given.text} lacks {wanted[0]}; KV could not leave {vendor} memory",
                        given.path,
                        help=f"add `{wanted[0]}`, or remove `UCX_TLS`",
                    )


RULE = SpecRule(
    "DGC419",
    "ucx-device-copy",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: docs/features/nixl_connector_usage.md; UCX: UCX_TLS",),
    fails=(
        """
        services: {chat: {engine: {env: {UCX_TLS: "rc,sm,self"}}}}
        #                                         ^ DGC419
        """,
    ),
    passes=('services: {chat: {engine: {env: {UCX_TLS: "rc,cuda_copy,cuda_ipc,sm,self"}}}}',),
)
