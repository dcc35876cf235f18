"""Which replicas share a node: sizes packed into as few nodes as the solver counted on.

Big replicas first, so that sizes that divide each other never leave a hole; exact patterns where they do not. Knows no
node by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from disaggc.ir.plan import Role, Shape

ROLE_ORDER = {Role.PREFILL: 0, Role.DECODE: 1, Role.COLOCATED: 2, Role.FLEXIBLE: 3}


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many equal replicas. alone: the service takes whole nodes for itself. spread: over as many nodes as it has."""

    service: str
    role: Role
    group: str
    shape: Shape
    count: int
    alone: bool = False
    spread: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """One replica's part on one node; multi-node replicas have one for each of their nodes."""

    wanted: Wanted
    replica: int
    rank: int
    size: int


Bundle = list[Item]
"""What one node will hold."""


def items_of(wanted: Iterable[Wanted], per_node: int) -> list[Item]:
    """Every part of every replica, largest first."""
    ordered = sorted(
        wanted,
        key=lambda w: (
            -min(w.shape.accelerators, per_node),
            w.service,
            ROLE_ORDER[w.role],
            -w.shape.accelerators,
        ),
    )
    items: list[Item] = []
    for w in ordered:
        total = w.shape.accelerators
        nodes = -(-total // per_node)
        for replica in range(w.count):
            for rank in range(nodes):
                size = per_node if nodes > 1 else total
                items.append(Item(w, replica, rank, size))
    return items


def pack(wanted: list[Wanted], per_node: int) -> list[Bundle]:
    """Contents of nodes: first fit of falling sizes, or exact patterns where that needs more nodes than it should."""
    items = items_of(wanted, per_node)
    total = sum(item.size for item in items)
    bundles = _first_fit(items, per_node)
    least = -(-total // per_node)
    if len(bundles) > least:
        better = _fewest(items, per_node, range(least, len(bundles)))
        bundles = better if better is not None else bundles
    if any(w.spread for w in wanted):
        return _spread(items, len(bundles), per_node) or bundles
    return bundles


def _first_fit(items: list[Item], per_node: int) -> list[Bundle]:
    bundles: list[Bundle] = []
    for item in items:
        for bundle in bundles:
            if sum(other.size for other in bundle) + item.size <= per_node:
                bundle.append(item)
                break
        else:
            bundles.append([item])
    return bundles


def _spread(items: list[Item], nodes: int, per_node: int) -> list[Bundle] | None:
    """The same number of nodes with each role's replicas on as many of them as possible."""
    bundles: list[Bundle] = [[] for _ in range(nodes)]
    for item in items:
        room = [b for b in bundles if sum(other.size for other in b) + item.size <= per_node]
        if not room:
            return None
        kin = (item.wanted.service, item.wanted.role)
        best = min(
            room,
            key=lambda b: (sum((o.wanted.service, o.wanted.role) == kin for o in b), sum(o.size for o in b)),
        )
        best.append(item)
    return bundles


def _crowding(bundle: Bundle, item: Item) -> tuple[int, int]:
    """How many of the item's own kind are here already, then how full it is."""
    kin = (item.wanted.service, item.wanted.role)
    return sum((other.wanted.service, other.wanted.role) == kin for other in bundle), sum(
        o.size for o in bundle
    )


def _fewest(items: list[Item], per_node: int, tries: range) -> list[Bundle] | None:
    """Exact packing by depth-first search over what the next node holds; sizes are few, so the states are too."""
    sizes = sorted({item.size for item in items}, reverse=True)
    need = tuple(sum(item.size == size for item in items) for size in sizes)
    for nodes in tries:
        chosen = _search(tuple(sizes), need, (nodes, per_node))
        if chosen is not None:
            queues = {size: [item for item in items if item.size == size] for size in sizes}
            return [
                [queues[size].pop(0) for size, n in zip(sizes, row, strict=True) for _ in range(n)]
                for row in chosen
            ]
    return None


def _search(
    sizes: tuple[int, ...], need: tuple[int, ...], room: tuple[int, int]
) -> list[tuple[int, ...]] | None:
    nodes, per_node = room
    dead: set[tuple[tuple[int, ...], int]] = set()

    def rows(position: int, left: int, need: tuple[int, ...]) -> Iterable[tuple[int, ...]]:
        if position == len(sizes):
            yield ()
            return
        for count in range(min(need[position], left // sizes[position]), -1, -1):
            for rest in rows(position + 1, left - count * sizes[position], need):
                yield (count, *rest)

    def fill(need: tuple[int, ...], nodes: int) -> list[tuple[int, ...]] | None:
        if not any(need):
            return []
        volume = sum(size * n for size, n in zip(sizes, need, strict=True))
        if volume > nodes * per_node or (need, nodes) in dead:
            return None
        for row in rows(0, per_node, need):
            rest = fill(tuple(n - r for n, r in zip(need, row, strict=True)), nodes - 1) if any(row) else None
            if rest is not None:
                return [row, *rest]
        dead.add((need, nodes))
        return None

    return fill(need, nodes)
