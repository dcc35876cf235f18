"""UCX transports without RDMA on an RDMA fabric.

With `UCX_TLS` limited to TCP the cards are never used: time to first token grows 5 to 100 times with HTTP 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import env, transfers_kv
from disaggc.rules.rule import Finding, SpecRule

_RDMA = ("rc", "dc", "ud", "ib", "gga", "srd", "all")


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Explicit UCX_TLS lists without any RDMA transport, or that exclude them, without `allow_tcp`."""
    if not resolved.fabric.rdma or resolved.spec.cluster.fabric.allow_tcp:
        return
    for service in resolved.services:
        for given in env(service):
            if given.name != "UCX_TLS" or not given.text or not transfers_kv(service):
                continue
            names = [name.strip() for name in given.text.lstrip("^").split(",")]
            rdma = [name for name in names if name.startswith(_RDMA)]
            excluded = given.text.startswith("^")
            if (excluded and {"ib", "rc"} & set(rdma)) or (not excluded and not rdma):
                yield Finding(
                    f"`UCX_TLS` {given.text} has no RDMA transport for the {resolved.fabric.type} fabric; "
                    "KV would move over TCP with HTTP 200",
                    given.path,
                    help="add `rc`, or remove `UCX_TLS`",
                )


RULE = SpecRule(
    "DGC420",
    "ucx-tcp-only",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/sgl-project/ome/issues/837",
        "https://github.com/ai-dynamo/nixl/issues/1097",
    ),
    fails=(
        """
        services: {chat: {engine: {env: {UCX_TLS: "tcp,cuda_copy"}}}}
        #                                         ^ DGC420
        """,
    ),
    passes=('services: {chat: {engine: {env: {UCX_TLS: "rc,tcp,cuda_copy"}}}}',),
)
