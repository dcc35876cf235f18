"""A replica over several nodes on compose.

A compose project lives on one host and knows nothing of the others; ranks of one engine cannot be ordered across
them.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups, resolved_choices


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Roles whose smallest listed shape is wider than any node, where the target is compose."""
    if resolved.target != "compose":
        return
    for service in resolved.services:
        for part in active_parts(service):
            choice = resolved_choices(service, part)
            least = min(choice.tp or (1,)) * min(choice.pp or (1,)) * min(choice.dp or (1,))
            widest = max((group.per_node for group in groups(resolved, service, part)), default=0)
            if widest and least > widest:
                yield Finding(
                    f"`constraints.{part}` needs at least {least} accelerators for one replica, a node has {widest}; "
                    "compose cannot span nodes",
                    at(service, "constraints", part),
                    help="allow smaller shapes, or write `target: systemd` or `kubernetes`",
                )


RULE = SpecRule(
    "DGC615",
    "compose-spans-nodes",
    Severity.ERROR,
    check,
    sources=("Compose specification: a project runs on one engine",),
    fails=(
        """
        target: compose
        services: {chat: {constraints: {mode: disaggregated, prefill: {tp: [8], pp: [2]}}}}
        #                                                             ^ DGC615
        """,
    ),
    passes=(
        """
        target: compose
        services: {chat: {constraints: {mode: disaggregated, prefill: {tp: [4], pp: [2]}}}}
        """,
    ),
)
