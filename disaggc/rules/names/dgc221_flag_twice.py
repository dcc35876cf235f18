"""The same flag under two names.

An alias, a `no-` form or an underscore spelling is the same flag. With both on one command line the last one wins,
and which one is last is not visible in the spec.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import FieldPath, Label, Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules.given import GivenFlag, flags
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Two entries of one settings map that resolve to one flag (and the same dotted key)."""
    for service in resolved.services:
        seen: dict[tuple[FieldPath, str, str], GivenFlag] = {}
        for given in flags(service):
            place = (given.path[:-1], given.flag, given.key)
            first = seen.setdefault(place, given)
            if first is not given:
                yield Finding(
                    f"`{given.written}` and `{first.written}` are the same flag; only one of them would count",
                    given.path,
                    help=f"keep `{given.flag}` once",
                    labels=(Label(first.path, "first written here"),),
                    at_key=True,
                )


RULE = SpecRule(
    "DGC221",
    "flag-twice",
    Severity.ERROR,
    check,
    sources=("vLLM: FlexibleArgumentParser accepts aliases, underscores and --no- forms",),
    fails=(
        """
        services: {chat: {engine: {settings: {enforce-eager: true, no-enforce-eager: true}}}}
        #                                                          ^ DGC221
        """,
    ),
    passes=("services: {chat: {engine: {settings: {enforce-eager: true}}}}",),
)
