"""Times that no layout on the cluster can beat: peak compute and peak bandwidth of the widest replica, nothing else.

Deliberately hopeful, so that whatever lies below is impossible and not merely hard. Knows no queue and no overhead.
"""

from __future__ import annotations

from disaggc.resolve.model import NodeGroupFacts, PartName, ResolvedService, ResolvedSpec
from disaggc.rules.shapes import active_parts, groups, resolved_choices


def least_prefill_s(resolved: ResolvedSpec, service: ResolvedService, tokens: float) -> float:
    """Seconds to run `tokens` prompt tokens once, at peak FLOP/s on the widest tensor and pipeline parallel replica."""
    rates = [
        max(flops for _, flops in group.accelerator.peak_flops)
        * _tp(service, part, group)
        * _pp(service, part, group)
        for part in active_parts(service)
        if part != "decode"
        for group in groups(resolved, service, part)
    ]
    return 2.0 * service.model.active_parameters * tokens / max(rates) if rates else 0.0


def least_step_s(resolved: ResolvedSpec, service: ResolvedService) -> float:
    """Seconds between two tokens of one sequence: the active weights read once at peak bandwidth.

    With speculation one step may give all of its draft tokens.
    """
    rates = [
        group.accelerator.memory_bandwidth * _tp(service, part, group) * _dp(service, part, group)
        for part in active_parts(service)
        if part != "prefill"
        for group in groups(resolved, service, part)
    ]
    if not rates:
        return 0.0
    weights = sum(group.active * group.bytes_per_parameter for group in service.model.weights)
    speculative = service.given.speculative
    return weights / max(rates) / (1 + (speculative.tokens if speculative is not None else 0))


def _tp(service: ResolvedService, part: PartName, group: NodeGroupFacts) -> int:
    widest = max(group.per_node, group.accelerator.link_domain)
    return max((tp for tp in resolved_choices(service, part).tp or (widest,)), default=widest)


def _pp(service: ResolvedService, part: PartName, group: NodeGroupFacts) -> int:
    return max(resolved_choices(service, part).pp or (max(1, len(group.nodes)),))


def _dp(service: ResolvedService, part: PartName, group: NodeGroupFacts) -> int:
    if not service.model.is_moe:
        return 1
    return max(resolved_choices(service, part).dp or (max(1, len(group.nodes) * group.per_node),))
