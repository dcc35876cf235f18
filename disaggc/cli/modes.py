"""Layouts by name, as `--mode` takes them: `plan`, `colocated`, `2P3D`; and the ratios of `--sweep ratio`.

A ratio is laid out with the shapes predicted to do best at the spec's aim. Knows no load and no output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from disaggc.ir.plan import Pool, Role, ServicePlan, Shape
from disaggc.perf.layout import Layout, LayoutPrediction, PoolLayout
from disaggc.perf.models import Models
from disaggc.perf.predict import predict
from disaggc.resolve.model import NodeGroupFacts, ResolvedService
from disaggc.resolve.pairing import pair_refusal
from disaggc.solve.shapes import choices_of, shapes_for

RATIO = re.compile(r"([1-9]\d{0,3})[pP]([1-9]\d{0,3})[dD]")
_MOST_RATIOS = 64


@dataclass(frozen=True, slots=True)
class Kind:
    """A replica that fits a node group."""

    role: Role
    group: NodeGroupFacts
    shape: Shape


@dataclass(frozen=True, slots=True)
class Named:
    """A layout under the name it is shown by."""

    name: str
    layout: Layout


class Modes:
    """Layouts of one service on the whole cluster."""

    def __init__(self, models: Models, service: ResolvedService) -> None:
        self.models, self.service = models, service
        self._kinds: dict[Role, tuple[Kind, ...]] = {}

    def ratio(self, prefill: int, decode: int) -> Layout | str:
        """XPyD with the shapes that do best, or why there is none."""
        found = [
            _layout(((p, prefill), (d, decode)))
            for p, d in self._pairs()
            if self._packs(((p, prefill), (d, decode)))
        ]
        return self._best(found) or f"{prefill}P{decode}D does not fit {self._what_there_is()}"

    def colocated(self) -> Layout | str:
        """As many colocated replicas as fit, with the shape that does best."""
        wanted = self.service.colocated.replicas
        found = []
        for kind in self._of(Role.COLOCATED):
            most = self._most(kind)
            count = most if wanted is None else wanted
            if 0 < count <= most:
                found.append(_layout(((kind, count),)))
        return self._best(found) or f"no colocated replica fits {self._what_there_is()}"

    def every_ratio(self) -> tuple[Named, ...]:
        """Every xPyD that fills the cluster with the best pair of shapes, and colocated."""
        filled = [
            (p, d, x, y)
            for p, d in self._pairs()
            for x in range(1, min(self._most(p), _MOST_RATIOS) + 1)
            if (y := self._rest(p, d, x)) > 0
        ]
        best = self._best([_layout(((p, x), (d, y))) for p, d, x, y in filled])
        named = []
        if best is not None:
            kinds = {(pool.group.name, pool.shape, pool.role) for pool in best.pools}
            named = [
                Named(f"{x}P{y}D", _layout(((p, x), (d, y))))
                for p, d, x, y in filled
                if {(k.group.name, k.shape, k.role) for k in (p, d)} == kinds
            ]
        alone = self.colocated()
        return (*named, Named("colocated", alone)) if isinstance(alone, Layout) else tuple(named)

    def _best(self, layouts: list[Layout]) -> Layout | None:
        """By the spec's aim, those that keep the objectives first; equals keep their order."""
        seen = [predict(self.models, self.service, layout) for layout in layouts]
        running = [p for p in seen if not p.reasons]
        return min(running, key=self._order).layout if running else None

    def _order(self, prediction: LayoutPrediction) -> tuple[bool, float]:
        if self.models.resolved.spec.optimize == "latency":
            return not prediction.meets_objectives, max(c.e2e.p50.value for c in prediction.classes)
        return not prediction.meets_objectives, -prediction.total_tok_per_s.value

    def _of(self, role: Role) -> tuple[Kind, ...]:
        if role not in self._kinds:
            groups = set(choices_of(self.service, role).groups)
            self._kinds[role] = tuple(
                Kind(role, group, shape)
                for group in self.models.resolved.groups
                if not groups or group.name in groups
                for shape in shapes_for(self.models, self.service, role, group=group)[0]
            )
        return self._kinds[role]

    def _pairs(self) -> Iterator[tuple[Kind, Kind]]:
        for p in self._of(Role.PREFILL):
            for d in self._of(Role.DECODE):
                same_vendor = p.group.accelerator.vendor == d.group.accelerator.vendor
                if same_vendor and pair_refusal(self.service, p.shape, d.shape) is None:
                    yield p, d

    def _packs(self, counts: tuple[tuple[Kind, int], ...]) -> bool:
        """Whether the replicas fit the nodes of their groups, the large ones placed first."""
        for group in self.models.resolved.groups:
            free = [group.per_node] * len(group.nodes)
            sizes = sorted(
                (k.shape.accelerators for k, n in counts if k.group is group for _ in range(n)), reverse=True
            )
            if sum(sizes) > sum(free) or not all(_placed(free, size, group.per_node) for size in sizes):
                return False
        return True

    def _most(self, kind: Kind) -> int:
        size, group = kind.shape.accelerators, kind.group
        if size > group.per_node:
            return len(group.nodes) // -(-size // group.per_node)
        return group.per_node // size * len(group.nodes)

    def _rest(self, prefill: Kind, decode: Kind, count: int) -> int:
        """Decode replicas that fit beside so many prefill replicas."""
        low, high = 0, self._most(decode)
        while low < high:
            middle = (low + high + 1) // 2
            if self._packs(((prefill, count), (decode, middle))):
                low = middle
            else:
                high = middle - 1
        return low

    def _what_there_is(self) -> str:
        parts = (f"{len(g.nodes)} x {g.per_node} {g.accelerator.id}" for g in self.models.resolved.groups)
        return "the cluster: " + ", ".join(parts)


def planned(service: ServicePlan, groups: Mapping[str, NodeGroupFacts]) -> Layout:
    """The plan's own layout, with the sequences it pins."""
    pools: list[PoolLayout] = []
    for pool in service.pools:
        if pool.role is Role.FLEXIBLE and service.flexible_ratio is not None:
            split = service.flexible_ratio
            pools.append(_pool(pool, groups, Role.PREFILL, count=split.prefill))
            pools.append(_pool(pool, groups, Role.DECODE, count=split.decode))
        else:
            pools.append(_pool(pool, groups, pool.role, count=len(pool.replicas)))
    return Layout(service.mode, tuple(pools))


def _pool(pool: Pool, groups: Mapping[str, NodeGroupFacts], role: Role, *, count: int) -> PoolLayout:
    return PoolLayout(role, groups[pool.group], pool.shape, count, pool.memory.sequences)


def _layout(counts: tuple[tuple[Kind, int], ...]) -> Layout:
    alone = all(kind.role is Role.COLOCATED for kind, _ in counts)
    pools = tuple(PoolLayout(kind.role, kind.group, kind.shape, n) for kind, n in counts)
    return Layout("colocated" if alone else "disaggregated", pools)


def _placed(free: list[int], size: int, per_node: int) -> bool:
    """Take the room of one replica; whether there was any."""
    if size > per_node:
        whole = [i for i, left in enumerate(free) if left == per_node][: -(-size // per_node)]
        if len(whole) * per_node < size:
            return False
        for i in whole:
            free[i] = 0
        return True
    room = [i for i, left in enumerate(free) if left >= size]
    if not room:
        return False
    free[min(room, key=lambda i: free[i])] -= size
    return True
