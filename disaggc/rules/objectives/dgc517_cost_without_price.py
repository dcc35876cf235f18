"""Optimising cost without prices.

A node group without a price would count as free, and the solver would put everything there.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`optimize: cost` with a node group that has no price."""
    if resolved.spec.optimize != "cost":
        return
    for group in resolved.groups:
        if group.price is None:
            yield Finding(
                f"`optimize` cost needs a price for every node group, {group.name} has none",
                ("optimize",),
                help=f"write `cluster.nodes.{group.name}.price: 24 USD/h`",
            )


RULE = SpecRule(
    "DGC517",
    "cost-without-price",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        """
        cluster: {nodes: {h100: {price: null}}}
        optimize: cost
        #         ^ DGC517
        """,
    ),
    passes=("optimize: cost",),
    suppressible=False,
)
