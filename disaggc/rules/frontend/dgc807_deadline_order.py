"""Deadlines of the proxy that do not lie inside one another.

A client's wait holds the proxy's whole request, that holds each leg, a leg holds its connection, and decode must have
been asked while prefill still leases the KV. A stage that is given longer than what surrounds it never ends by its own
deadline; a handoff beyond the lease lets decode read KV that is other requests' memory by then.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.front import HANDOFF_SHARE, LEASE_CEILING_S
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule
from disaggc.units import format_duration

_INSIDE = (
    ("connect", "prefill"),
    ("connect", "first_byte"),
    ("connect", "handoff"),
    ("prefill", "total"),
    ("handoff", "total"),
    ("first_byte", "total"),
    ("gap", "total"),
    ("queue", "total"),
)
"""(the inner stage, the one around it). What the spec leaves out is fitted to what it gives."""


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """An inner deadline above an outer one, both given; a handoff that no lease covers."""
    for service in resolved.services:
        given = service.given.proxy.timeouts
        for inner, outer in _INSIDE:
            within, around = getattr(given, inner), getattr(given, outer)
            if within is not None and around is not None and within > around:
                yield Finding(
                    f"`{inner}` {format_duration(within)} is longer than `{outer}` {format_duration(around)}, "
                    "which it is part of",
                    at(service, "proxy", "timeouts", inner),
                    help=f"write at most `{inner}: {format_duration(around)}`, or leave one of them out",
                )
        yield from _unleased(service)


def _unleased(service: ResolvedService) -> Iterator[Finding]:
    handoff, lease = service.given.proxy.timeouts.handoff, service.given.engine.connector.lease
    if handoff is None or not transfers_kv(service):
        return
    path = at(service, "proxy", "timeouts", "handoff")
    most = HANDOFF_SHARE * (LEASE_CEILING_S if lease == "auto" else lease)
    if lease == "auto" and handoff > most:
        yield Finding(
            f"`handoff` {format_duration(handoff)} needs a lease above {LEASE_CEILING_S} s, the most of `lease: auto`",
            path,
            help=f"write at most `handoff: {format_duration(most)}`, or `engine.connector.lease` yourself",
        )
    elif lease != "auto" and handoff >= lease:
        yield Finding(
            f"`handoff` {format_duration(handoff)} is not below the `lease` of {format_duration(lease)}: KV could be "
            "freed before decode fetches it",
            path,
            help=f"write at most `handoff: {format_duration(most)}`, or `lease: auto`",
        )


RULE = SpecRule(
    "DGC807",
    "deadline-order",
    Severity.ERROR,
    check,
    sources=("https://github.com/aws-samples/aws-do-eks/pull/84", "arithmetic"),
    fails=(
        """
        services: {chat: {proxy: {timeouts: {first_byte: 2min, total: 90s}}}}
        #                                                ^ DGC807
        """,
        """
        services: {chat: {proxy: {timeouts: {connect: 20s, prefill: 10s}}}}
        #                                             ^ DGC807
        """,
        """
        services: {chat: {engine: {connector: {lease: 40s}}, proxy: {timeouts: {handoff: 40s}}}}
        #                                                                                ^ DGC807
        """,
        """
        services: {chat: {proxy: {timeouts: {handoff: 5min}}}}
        #                                             ^ DGC807
        """,
    ),
    passes=(
        "services: {chat: {proxy: {timeouts: {connect: 1s, prefill: 10s, first_byte: 10s, total: 90s}}}}",
        "services: {chat: {proxy: {timeouts: {total: 20s}}}}",
        "services: {chat: {engine: {connector: {lease: 40s}}, proxy: {timeouts: {handoff: 20s}}}}",
    ),
    suppressible=False,
)
