"""A GID index on a fabric that has none.

GID indices choose the RoCE version and network of a card; on InfiniBand, EFA and TCP the value would be ignored.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`gid_index` on another fabric than roce."""
    fabric = resolved.spec.cluster.fabric
    if fabric.gid_index is not None and fabric.type != "roce":
        yield Finding(
            f"`gid_index` {fabric.gid_index} means something on roce only, `type` is {fabric.type}",
            ("cluster", "fabric", "gid_index"),
            help="remove it, or write `type: roce`",
        )


RULE = SpecRule(
    "DGC428",
    "gid-index-unused",
    Severity.ERROR,
    check,
    sources=("UCX: UCX_IB_GID_INDEX",),
    fails=(
        """
        cluster: {fabric: {gid_index: 3}}
        #                             ^ DGC428
        """,
    ),
    passes=("cluster: {fabric: {type: roce, gid_index: 3}}",),
)
