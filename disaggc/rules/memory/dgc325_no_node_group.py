"""A role that may run nowhere.

`accelerators` and `nodes` of a role restrict its node groups; together they leave none.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, resolved_choices, written
from disaggc.rules.wording import listed


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Parts whose resolved groups are empty."""
    for service in resolved.services:
        for part in active_parts(service):
            if resolved_choices(service, part).groups:
                continue
            given = written(service, part)
            field = "nodes" if given.nodes is not None else "accelerators"
            here = sorted({group.accelerator.id for group in resolved.groups})
            yield Finding(
                f"`{field}` leaves no node group for {part}; the cluster has {listed(here)}",
                at(service, "constraints", part, field),
                help=f"write accelerators among {listed(here)} and node groups that have them",
                severity=Severity.WARNING
                if service.mode == "auto" and part != "colocated"
                else Severity.ERROR,
            )


RULE = SpecRule(
    "DGC325",
    "no-node-group",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        """
        cluster: {nodes: {h20: {count: 1, accelerator: {type: h20, per_node: 8}}}}
        targets: {kubernetes: {rdma_resource: rdma/ib}}
        target: kubernetes
        services:
          chat:
            constraints:
              mode: disaggregated
              decode: {nodes: [h20], accelerators: [h100-sxm]}
        #                     ^ DGC325
        """,
    ),
    passes=("services: {chat: {constraints: {mode: disaggregated, decode: {nodes: [h100]}}}}",),
)
