from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from disaggc.ir.plan import Role, Shape
from disaggc.resolve.model import NodeGroupFacts, NodeRef
from disaggc.solve.packing import Wanted
from disaggc.solve.placement import Located, place
from tests.effort import examples
from tests.perf.perf_cases import nodes
from tests.solve.placement_oracle import bins


def wanted(role: Role, tp: int, count: int, **more: object) -> Wanted:
    return replace(Wanted("chat", role, "gpu", Shape(tp=tp), count), **more)  # type: ignore[arg-type]


def cluster(count: int, per_node: int = 8, racks: dict[str, range] | None = None) -> NodeGroupFacts:
    group = nodes("mi300x", count=count, per_node=per_node)
    of = {i: rack for rack, where in (racks or {}).items() for i in where}
    return replace(
        group, nodes=tuple(NodeRef(f"gpu-{i}", None, of.get(i), pinned=False) for i in range(count))
    )


def where(located: tuple[Located, ...] | None, role: Role) -> list[tuple[str, tuple[int, ...]]]:
    assert located is not None
    return [(s.node, s.devices) for _, r in located if r.role is role for s in r.slots]


def test_one_prefill_and_four_decode_take_the_nodes_in_order() -> None:
    found = place([wanted(Role.DECODE, 8, 4), wanted(Role.PREFILL, 8, 1)], [cluster(5)])
    assert where(found, Role.PREFILL) == [("gpu-0", tuple(range(8)))]
    assert [node for node, _ in where(found, Role.DECODE)] == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def test_small_replicas_share_a_node_aligned_to_their_size() -> None:
    found = place([wanted(Role.PREFILL, 2, 2), wanted(Role.DECODE, 4, 1)], [cluster(1)])
    assert where(found, Role.DECODE) == [("gpu-0", (0, 1, 2, 3))]
    assert where(found, Role.PREFILL) == [("gpu-0", (4, 5)), ("gpu-0", (6, 7))]


def test_roles_keep_to_their_nodes_unless_spares_ask_for_spreading() -> None:
    together = place([wanted(Role.PREFILL, 4, 2), wanted(Role.DECODE, 4, 2)], [cluster(2)])
    assert len({node for node, _ in where(together, Role.PREFILL)}) == 1
    apart = place(
        [wanted(Role.PREFILL, 4, 2, spread=True), wanted(Role.DECODE, 4, 2, spread=True)], [cluster(2)]
    )
    assert len({node for node, _ in where(apart, Role.PREFILL)}) == 2


def test_every_rack_gets_its_share_of_prefill() -> None:
    group = cluster(6, racks={"a": range(3), "b": range(3, 6)})
    found = place([wanted(Role.PREFILL, 8, 2), wanted(Role.DECODE, 8, 4)], [group])
    rack = {node.name: node.rack for node in group.nodes}
    assert sorted(rack[node] or "" for node, _ in where(found, Role.PREFILL)) == ["a", "b"]


def test_what_fits_one_rack_stays_in_one() -> None:
    group = cluster(6, racks={"a": range(2), "b": range(2, 6)})
    found = place([wanted(Role.PREFILL, 8, 1), wanted(Role.DECODE, 8, 2)], [group])
    rack = {node.name: node.rack for node in group.nodes}
    assert {rack[node] for role in (Role.PREFILL, Role.DECODE) for node, _ in where(found, role)} == {"b"}


def test_what_was_placed_stays_and_the_rest_fills_the_gaps() -> None:
    before = place([wanted(Role.DECODE, 4, 3)], [cluster(3)])
    assert before is not None
    kept = before[1:]
    after = place([wanted(Role.DECODE, 4, 4)], [cluster(3)], kept)
    assert after is not None
    assert set(kept) <= set(after)


def test_a_service_with_nodes_of_its_own_shares_none() -> None:
    found = place(
        [wanted(Role.COLOCATED, 4, 1, alone=True), Wanted("code", Role.COLOCATED, "gpu", Shape(tp=4), 1)],
        [cluster(2)],
    )
    assert found is not None
    assert len({slot.node for _, r in found for slot in r.slots}) == 2


@settings(max_examples=examples(150))
@given(
    st.dictionaries(
        st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12, 16]), st.integers(1, 4), min_size=1, max_size=4
    ),
    st.sampled_from([4, 6, 8]),
    st.integers(1, 6),
)
def test_whatever_fits_by_counting_is_placed_without_overlap(
    sizes: dict[int, int], per_node: int, count: int
) -> None:
    asked = [wanted(Role.COLOCATED, size, n) for size, n in sizes.items()]
    needed = bins(tuple(size for size, n in sizes.items() for _ in range(n)), per_node)
    found = place(asked, [cluster(count, per_node)])
    assert (found is not None) == (needed <= count)
    if found is None:
        return
    taken = [(slot.node, d) for _, r in found for slot in r.slots for d in slot.devices]
    assert len(taken) == len(set(taken))
    assert all(d < per_node for _, d in taken)
    assert len({node for node, _ in taken}) == needed
    assert sorted(r.shape.tp for _, r in found) == sorted(size for size, n in sizes.items() for _ in range(n))
    assert found == place(reversed(asked), [cluster(count, per_node)])
