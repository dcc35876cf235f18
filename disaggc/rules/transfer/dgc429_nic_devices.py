"""Fewer or more device names than cards.

The number of cards sets the planned transfer bandwidth, the names say which ones UCX uses; they must agree.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`nics.devices` whose length is not `nics.per_node`, or that names a card twice."""
    for name, group in resolved.spec.cluster.nodes.items():
        devices = group.nics.devices if group.nics is not None else None
        if group.nics is None or devices is None:
            continue
        place = ("cluster", "nodes", name, "nics", "devices")
        if len(devices) != group.nics.per_node:
            yield Finding(
                f"`devices` names {len(devices)} cards, `per_node` says {group.nics.per_node}",
                place,
                help="name each card once, or correct `per_node`",
            )
        elif len(set(devices)) != len(devices):
            twice = next(d for d in devices if devices.count(d) > 1)
            yield Finding(
                f"`devices` names {twice} {devices.count(twice)} times", place, help="name each card once"
            )


RULE = SpecRule(
    "DGC429",
    "nic-devices",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        """
        cluster: {nodes: {h100: {nics: {per_node: 2, devices: [mlx5_0]}}}}
        #                                                     ^ DGC429
        """,
    ),
    passes=("cluster: {nodes: {h100: {nics: {per_node: 2, devices: [mlx5_0, mlx5_1]}}}}",),
)
