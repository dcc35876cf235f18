"""A disaggregated service that lacks one of its roles.

Without a prefill engine decode recomputes every prompt itself, with HTTP 200 and no sign of it; without a decode
engine nothing is ever answered.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import ROLES, at, choices
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`replicas: 0` for a role of a service whose mode is disaggregated."""
    for service in resolved.services:
        for role in ROLES:
            if service.mode == "disaggregated" and choices(service, role).replicas == 0:
                yield Finding(
                    f"`replicas` of {role} is 0 while `mode` is disaggregated, which needs at least 1 of each role",
                    at(service, "constraints", role, "replicas"),
                    help="remove it, or write `mode: colocated`",
                )


RULE = SpecRule(
    "DGC322",
    "role-without-replicas",
    Severity.ERROR,
    check,
    sources=("https://github.com/llm-d-incubation/llm-d-modelservice/pull/193",),
    fails=(
        """
        services: {chat: {constraints: {mode: disaggregated, prefill: {replicas: 0}}}}
        #                                                                        ^ DGC322
        """,
    ),
    passes=("services: {chat: {constraints: {mode: disaggregated, prefill: {replicas: 1}}}}",),
)
