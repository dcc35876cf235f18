"""More accelerators asked for than the cluster has.

The smallest allowed shape times the fixed number of replicas of a role already exceeds the nodes it may use.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups, resolved_choices, written


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Fixed replicas x smallest tp x pp x dp above the accelerators of the allowed groups."""
    for service in resolved.services:
        for part in active_parts(service):
            choice = resolved_choices(service, part)
            count = written(service, part).replicas
            if not count:
                continue
            each = min(choice.tp or (1,)) * min(choice.pp or (1,)) * min(choice.dp or (1,))
            there = sum(len(g.nodes) * g.per_node for g in groups(resolved, service, part))
            if count * each > there:
                yield Finding(
                    f"`replicas` {count} of {part} need at least {count * each} accelerators, its nodes have {there}",
                    at(service, "constraints", part, "replicas"),
                    help=f"write at most {there // each}, or allow more nodes",
                )


RULE = SpecRule(
    "DGC323",
    "replicas-beyond-cluster",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        """
        services: {chat: {constraints: {decode: {tp: [8], replicas: 4}}}}
        #                                                           ^ DGC323
        """,
    ),
    passes=("services: {chat: {constraints: {decode: {tp: [8], replicas: 2}}}}",),
)
