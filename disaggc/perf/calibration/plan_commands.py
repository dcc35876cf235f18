"""A resolved spec -> the bench runs that calibrate it, as shell lines. Knows no files."""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.ir.plan import Shape
from disaggc.perf.calibration.schedule import schedule
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, ResolvedSpec, RoleChoices

_SEQUENCES = 256


def commands(resolved: ResolvedSpec) -> Iterator[str]:
    """One block for each service and kind of accelerator; the shape is the spec's, else a whole node."""
    for service in resolved.services:
        names = dict.fromkeys((*service.prefill.groups, *service.decode.groups, *service.colocated.groups))
        seen = set()
        for group in (resolved.group(name) for name in names):
            if group.accelerator.id not in seen:
                seen.add(group.accelerator.id)
                yield from _block(service, group)


def _block(service: ResolvedService, group: NodeGroupFacts) -> Iterator[str]:
    shape = _shape(service.decode, group)
    runs = schedule(service.max_model_len, _SEQUENCES)
    yield f"# {service.served_name} on {group.accelerator.id}, {shape}: {len(runs)} short runs"
    yield "# decode, prefill and mixed: one engine of that shape, prefix caching off (`--no-enable-prefix-caching`);"
    yield "# pd: the proxy of one prefill and one decode engine."
    yield "# Then: disaggc calibrate *.json --out calibration.yaml"
    metadata = [
        ("disaggc_model", service.model.id),
        ("disaggc_accelerator", group.accelerator.id),
        ("disaggc_shape", str(shape).replace(" ", ",")),
        ("disaggc_replicas", "1"),
    ]
    yield from (run.command(service.served_name, metadata) for run in runs)


def _shape(choices: RoleChoices, group: NodeGroupFacts) -> Shape:
    dp = choices.dp[0] if choices.dp else 1
    tp = choices.tp[0] if choices.tp else max(1, group.per_node // dp)
    return Shape(tp=tp, dp=dp, ep=tp * dp if choices.expert_parallel else 1)
