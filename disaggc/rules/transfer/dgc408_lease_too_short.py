"""A lease that ends before decode can fetch the KV.

Prefill keeps the KV of a finished prompt for the lease. Between its answer and decode's admission nothing renews
it: the proxy's hop, decode's queue and a first handshake of about 5 s must fit. KV read after its lease is other
requests' memory: wrong tokens with HTTP 200.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ClassLoad, ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule
from disaggc.units import format_duration

HANDSHAKE_S = 5.0
_HOP_S = 1.0


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """A lease below handshake + hop + the longest wait that the ttft bounds allow."""
    for service in resolved.services:
        lease = service.given.engine.connector.lease
        if lease == "auto" or not transfers_kv(service):
            continue
        wait = max((_allowed_wait(load) for load in service.classes), default=0.0)
        needed = HANDSHAKE_S + _HOP_S + wait
        if lease < needed:
            yield Finding(
                f"`lease` {format_duration(lease)} is shorter than the {format_duration(needed)} until decode has "
                "fetched KV at worst; late reads give wrong tokens with HTTP 200",
                at(service, "engine", "connector", "lease"),
                help=f"write `lease: auto`, or at least `lease: {int(needed) + 1}s`",
                notes=(
                    f"5 s for a first handshake, 1 s for the proxy, {format_duration(wait)} of queue in `ttft`",
                ),
            )


def _allowed_wait(load: ClassLoad) -> float:
    """The queue that the class's loosest time-to-first-token bound allows."""
    return max((bound.limit_s for bound in load.bounds if bound.metric == "ttft"), default=0.0)


RULE = SpecRule(
    "DGC408",
    "lease-too-short",
    Severity.ERROR,
    check,
    sources=("https://github.com/aws-samples/aws-do-eks/pull/84", "vLLM 0.33: nixl pull_worker.py:669-681"),
    fails=(
        """
        services: {chat: {engine: {connector: {lease: 5s}}}}
        #                                             ^ DGC408
        """,
    ),
    passes=("services: {chat: {engine: {connector: {lease: 60s}}}}",),
    suppressible=False,
)
