"""Which prefill pools may hand KV to which decode pools, and what one transfer is planned to take."""

from __future__ import annotations

from collections.abc import Sequence

from disaggc.ir.plan import KvLink, Pool, Role
from disaggc.perf.models import Models
from disaggc.perf.transfer import Endpoint, KvPath, kv_path
from disaggc.resolve.model import ResolvedService
from disaggc.solve.solution import ServiceSolution


def mean_uncached_prompt(service: ResolvedService) -> float:
    """Mean prompt tokens of a request that prefill must compute, over the classes by rate."""
    weights = [load.rate or float(load.concurrency or 1) for load in service.classes]
    tokens = [load.isl.mean for load in service.classes]
    return sum(w * t for w, t in zip(weights, tokens, strict=True)) / sum(weights)


def kv_links(models: Models, service: ResolvedService, pools: Sequence[Pool]) -> tuple[KvLink, ...]:
    """Every pair of one vendor; a flexible pool links to itself."""
    senders = [p for p in pools if p.role in (Role.PREFILL, Role.FLEXIBLE)]
    receivers = [p for p in pools if p.role in (Role.DECODE, Role.FLEXIBLE)]
    return tuple(
        _link(models, service, sender, receiver=receiver)
        for sender in senders
        for receiver in receivers
        if sender.vendor == receiver.vendor
    )


def path_between(models: Models, service: ResolvedService, sender: Pool, *, receiver: Pool) -> KvPath:
    """The path of the pair; pools that share every node use the link inside it."""
    resolved = models.resolved
    same = _nodes(sender) == _nodes(receiver) and len(_nodes(sender)) == 1
    return kv_path(
        service,
        resolved.fabric,
        Endpoint(resolved.group(sender.group), sender.shape),
        decode=Endpoint(resolved.group(receiver.group), receiver.shape),
        same_node=same,
    )


def _link(models: Models, service: ResolvedService, sender: Pool, *, receiver: Pool) -> KvLink:
    path = path_between(models, service, sender, receiver=receiver)
    constants = models.constants(service, models.resolved.group(sender.group), sender.shape)
    return KvLink(
        prefill=sender.address,
        decode=receiver.address,
        bytes_per_request=path.bytes_for(mean_uncached_prompt(service)),
        bandwidth=path.speed(constants.at("likely")),
        bandwidth_low=path.speed(constants.at("worst")),
        transport=path.transport,
    )


def _nodes(pool: Pool) -> frozenset[str]:
    return frozenset(slot.node for replica in pool.replicas for slot in replica.slots)


def handoff_s(models: Models, service: ResolvedService, found: ServiceSolution) -> float:
    """Seconds from the end of prefill to the end of the transfer of the longest prompts, on the slowest pair."""
    layout = found.layout
    senders = [p for p in layout.pools if p.role is Role.PREFILL]
    receivers = [p for p in layout.pools if p.role is Role.DECODE]
    longest = max(load.isl.p99 for load in service.classes)
    slowest = 0.0
    for sender in senders:
        values = models.constants(service, sender.group, sender.shape).at("worst")
        for receiver in receivers:
            path = kv_path(
                service,
                models.resolved.fabric,
                Endpoint(sender.group, sender.shape),
                decode=Endpoint(receiver.group, receiver.shape),
                same_node=False,
            )
            slowest = max(slowest, path.seconds(longest, values))
    return slowest
