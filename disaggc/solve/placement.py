"""Puts counted replicas on concrete nodes and devices, the same way every time.

Devices contiguous and aligned to the
replica's size; roles kept together on a node unless spares ask for them to be spread; prefill and decode shared out
over racks in proportion, so that little KV crosses between racks. Knows no performance model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from disaggc.ir.plan import Role
from disaggc.resolve.model import NodeGroupFacts
from disaggc.solve.packing import ROLE_ORDER, Bundle, Wanted, items_of, pack
from disaggc.solve.solution import Placed, SlotAt

Located = tuple[str, Placed]
"""(service, replica)."""


def place(
    wanted: Iterable[Wanted], groups: Iterable[NodeGroupFacts], kept: Iterable[Located] = ()
) -> tuple[Located, ...] | None:
    """Every replica with its slots, canonical order; None when they do not fit.

    Replicas in `kept` stay where they are as far as the wanted counts and the nodes still have room for them.
    """
    wanted = tuple(wanted)
    groups = tuple(groups)
    staying, missing = _split(wanted, groups, tuple(kept))
    placed = _place_all(missing, groups, staying)
    if placed is None and staying:
        placed = _place_all(wanted, groups, ())
        staying = ()
    if placed is None:
        return None
    return tuple(sorted((*staying, *placed), key=_canonical))


def _canonical(item: Located) -> tuple[object, ...]:
    service, replica = item
    s = replica.shape
    first = replica.slots[0]
    order = ROLE_ORDER[replica.role]
    shape = (s.tp, s.pp, s.dp, s.ep, s.dcp)
    return (service, order, replica.group, shape, _natural(first.node), first.devices)


def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """`gpu-2` before `gpu-10`."""
    parts: list[str] = [""]
    for letter in name:
        if parts[-1] and letter.isdigit() != parts[-1][-1].isdigit():
            parts.append("")
        parts[-1] += letter
    return tuple((0, int(p)) if p.isdecimal() and p.isascii() else (1, p) for p in parts)


def _split(
    wanted: tuple[Wanted, ...], groups: tuple[NodeGroupFacts, ...], kept: tuple[Located, ...]
) -> tuple[tuple[Located, ...], tuple[Wanted, ...]]:
    """What may stay, and what is still to be placed."""
    sizes = {node.name: group.per_node for group in groups for node in group.nodes}
    left = [w.count for w in wanted]
    staying: list[Located] = []
    taken: set[tuple[str, int]] = set()
    for service, replica in sorted(kept, key=_canonical):
        claims = {(slot.node, device) for slot in replica.slots for device in slot.devices}
        known = all(device < sizes.get(node, 0) for node, device in claims)
        for position, w in enumerate(wanted):
            same = (w.service, w.role, w.group, w.shape) == (
                service,
                replica.role,
                replica.group,
                replica.shape,
            )
            if same and known and left[position] and not claims & taken:
                left[position] -= 1
                taken |= claims
                staying.append((service, replica))
                break
    missing = [replace(w, count=n) for w, n in zip(wanted, left, strict=True) if n]
    return tuple(staying), tuple(missing)


def _place_all(
    wanted: tuple[Wanted, ...], groups: tuple[NodeGroupFacts, ...], staying: tuple[Located, ...]
) -> list[Located] | None:
    placed: list[Located] = []
    for group in groups:
        inside = [w for w in wanted if w.group == group.name]
        if not inside:
            continue
        found = _place_group(inside, group, staying)
        if found is None:
            return None
        placed.extend(found)
    return placed


def _place_group(
    wanted: list[Wanted], group: NodeGroupFacts, staying: tuple[Located, ...]
) -> list[Located] | None:
    busy: dict[str, set[int]] = {node.name: set() for node in group.nodes}
    for _, replica in staying:
        for slot in replica.slots:
            busy.get(slot.node, set()).update(slot.devices)
    if any(busy.values()):
        return _fill_gaps(wanted, group, busy)
    bundles: list[Bundle] = []
    alone = sorted({w.service for w in wanted if w.alone})
    for share in [[w for w in wanted if w.service == name] for name in alone] + [
        [w for w in wanted if not w.alone]
    ]:
        packed = pack(share, group.per_node)
        bundles.extend(packed)
    if len(bundles) > len(group.nodes):
        return None
    return _realise(zip(_assign(bundles, group), bundles, strict=True), {}, group.per_node)


def _assign(bundles: list[Bundle], group: NodeGroupFacts) -> list[str]:
    """A node for each bundle: fill few racks, and give every rack its share of prefill."""
    racks: dict[str, list[str]] = {}
    for node in group.nodes:
        racks.setdefault(node.rack or "", []).append(node.name)
    chosen = _racks_for(racks, len(bundles))
    slots = {rack: list(racks[rack]) for rack in chosen}
    left = {rack: len(racks[rack]) for rack in chosen}
    surplus = sum(left.values()) - len(bundles)
    if chosen:
        left[chosen[-1]] -= surplus
    names: dict[int, str] = {}
    dealt: dict[tuple[Role, str], int] = {}
    whole = {role: sum(_role(b) is role for b in bundles) for role in ROLE_ORDER}
    size = dict(left)
    total = sum(size.values()) or 1
    for position, bundle in enumerate(bundles):
        role = _role(bundle)
        rack = max(
            (r for r in chosen if left[r]),
            key=lambda r: (whole[role] * size[r] / total - dealt.get((role, r), 0), -chosen.index(r)),
        )
        dealt[role, rack] = dealt.get((role, rack), 0) + 1
        left[rack] -= 1
        names[position] = slots[rack].pop(0)
    return [names[position] for position in range(len(bundles))]


def _role(bundle: Bundle) -> Role:
    return min((item.wanted.role for item in bundle), key=ROLE_ORDER.__getitem__)


def _racks_for(racks: Mapping[str, list[str]], nodes: int) -> list[str]:
    """The smallest rack that holds everything, else the largest racks first."""
    order = list(racks)
    fitting = [rack for rack in order if len(racks[rack]) >= nodes]
    if fitting:
        return [min(fitting, key=lambda rack: (len(racks[rack]), order.index(rack)))]
    chosen: list[str] = []
    for rack in sorted(order, key=lambda rack: (-len(racks[rack]), order.index(rack))):
        if sum(len(racks[r]) for r in chosen) >= nodes:
            break
        chosen.append(rack)
    return chosen


def _fill_gaps(
    wanted: list[Wanted], group: NodeGroupFacts, busy: dict[str, set[int]]
) -> list[Located] | None:
    """Beside what stays: the first node with room for each replica, whole free nodes for the larger ones."""
    chosen: list[tuple[str, Bundle]] = []
    taken = {name: set(devices) for name, devices in busy.items()}
    for item in items_of(wanted, group.per_node):
        for node in group.nodes:
            start = _gap(taken[node.name], item.size, group.per_node)
            if start is not None:
                taken[node.name].update(range(start, start + item.size))
                chosen.append((node.name, [item]))
                break
        else:
            return None
    return _realise(chosen, busy, group.per_node)


def _gap(taken: set[int], size: int, per_node: int) -> int | None:
    """First free run of devices, aligned to the size where one is."""
    free = [s for s in range(per_node - size + 1) if taken.isdisjoint(range(s, s + size))]
    return min(free, key=lambda start: (start % size != 0, start), default=None)


def _realise(
    assigned: Iterable[tuple[str, Bundle]], busy: Mapping[str, set[int]], per_node: int
) -> list[Located] | None:
    """Devices for every part, parts joined to replicas."""
    slots: dict[tuple[Wanted, int], list[SlotAt]] = {}
    taken = {name: set(devices) for name, devices in busy.items()}
    for node, bundle in assigned:
        here = taken.setdefault(node, set())
        for item in bundle:
            start = _gap(here, item.size, per_node)
            if start is None:
                return None
            devices = tuple(range(start, start + item.size))
            here.update(devices)
            slots.setdefault((item.wanted, item.replica), []).append(SlotAt(node, item.rank, devices))
    return [
        (w.service, Placed(w.role, w.group, w.shape, tuple(sorted(parts, key=lambda s: s.rank))))
        for (w, _), parts in slots.items()
    ]
