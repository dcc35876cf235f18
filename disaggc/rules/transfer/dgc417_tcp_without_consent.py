"""KV over plain TCP without saying so.

KV over TCP reaches a tenth of the line rate; time to first token grows 5 to 100 times with HTTP 200. The spec must
say that this is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`fabric.type: tcp` without `allow_tcp`, where any service may be disaggregated."""
    fabric = resolved.spec.cluster.fabric
    if fabric.type == "tcp" and not fabric.allow_tcp and any(map(transfers_kv, resolved.services)):
        yield Finding(
            "`fabric.type` tcp has no RDMA; KV transfer would reach about a tenth of the line rate",
            ("cluster", "fabric", "type"),
            help="write `allow_tcp: true` beside it, or `constraints.mode: colocated` for every service",
        )


RULE = SpecRule(
    "DGC417",
    "tcp-without-consent",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/sgl-project/ome/issues/837",
        "https://github.com/vllm-project/vllm/issues/26382",
    ),
    fails=(
        """
        cluster: {fabric: {type: tcp, speed_per_nic: 100Gbit}}
        #                        ^ DGC417
        """,
    ),
    passes=("cluster: {fabric: {type: tcp, speed_per_nic: 100Gbit, allow_tcp: true}}",),
)
