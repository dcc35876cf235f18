"""A guaranteed rate above the offered one.

A guarantee is the part of the offered load that is served first; more than is offered cannot be served.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """`guarantees.rate` above the sum of the classes' rates, where every class has one."""
    for service in resolved.services:
        rate = service.given.guarantees.rate
        rates = [load.rate for load in service.classes]
        if rate is None or any(r is None for r in rates):
            continue
        offered = sum(r for r in rates if r is not None)
        if rate > offered * (1 + 1e-9):
            yield Finding(
                f"`guarantees.rate` {rate:g}/s exceeds the {offered:g}/s that the classes offer",
                at(service, "guarantees", "rate"),
                help=f"write at most `rate: {offered:g}/s`",
            )


RULE = SpecRule(
    "DGC518",
    "guarantee-beyond-offer",
    Severity.ERROR,
    check,
    sources=("arithmetic",),
    fails=(
        """
        services: {chat: {guarantees: {rate: 900/s}}}
        #                                    ^ DGC518
        """,
    ),
    passes=("services: {chat: {guarantees: {rate: 1/s}}}",),
)
