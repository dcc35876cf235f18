"""Accelerators given twice, or to nobody.

Two engines on one accelerator run out of memory; an engine with fewer accelerators than its shape does not start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import replicas, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Per replica: device count equals its shape; per node: each device once, and within what the node has."""
    there = {node.name: node.accelerators for node in planned.plan.nodes}
    taken: dict[tuple[str, int], str] = {}
    for service, pool, replica in replicas(planned.plan):
        count = sum(len(slot.devices) for slot in replica.slots)
        if count != pool.shape.accelerators:
            yield Finding(
                f"{replica.address} has {count} accelerators for shape {pool.shape}, which takes "
                f"{pool.shape.accelerators}",
                service_path(service),
            )
        for slot in replica.slots:
            for device in slot.devices:
                first = taken.setdefault((slot.node, device), replica.address)
                if first != replica.address:
                    yield Finding(
                        f"{first} and {replica.address} both have accelerator {device} of {slot.node}",
                        service_path(service),
                    )
                if device >= there.get(slot.node, 0):
                    yield Finding(
                        f"{replica.address} has accelerator {device} of {slot.node}, which has "
                        f"{there.get(slot.node, 0)}",
                        service_path(service),
                    )


RULE = PlanRule(
    "DGC334",
    "devices",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        (Edit("services/chat/pools/decode/shape/tp", 4),),
        (Edit("services/chat/pools/decode/replicas/0/slots/0/node", "gpu-01"),),
    ),
)
