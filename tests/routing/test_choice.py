import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.routing.choice import Chooser, affine, least_work, power_of_two
from disaggc.routing.table import Policy


@dataclass
class R:
    address: str
    weight: float = 1.0
    work: float = 0.0


fleets = st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 1e6)), min_size=1, max_size=12).map(
    lambda rows: [R(f"d/{i}", w, load) for i, (w, load) in enumerate(rows)]
)


@given(fleets, st.integers(0, 100))
def test_least_work_has_the_least(fleet, turn):
    chosen = least_work(fleet, turn)
    assert all(chosen.work / chosen.weight <= r.work / r.weight for r in fleet)


def test_equals_take_turns():
    fleet = [R("a"), R("b"), R("c")]
    assert {least_work(fleet, turn).address for turn in range(3)} == {"a", "b", "c"}


@given(fleets.filter(lambda f: len(f) > 1), st.integers())
def test_power_of_two_never_takes_the_worst_of_all(fleet, seed):
    rng = random.Random(seed)  # noqa: S311 - repeatable
    chosen = power_of_two(fleet, rng.random)
    loads = [r.work / r.weight for r in fleet]
    assert chosen.work / chosen.weight < max(loads) or loads.count(max(loads)) > 1


@given(fleets, st.binary(min_size=1, max_size=20))
def test_affinity_is_stable_and_moves_only_its_own(fleet, prefix):
    for r in fleet:
        r.work, r.weight = 0.0, 1.0
    owner = affine(fleet, prefix)
    assert affine(list(reversed(fleet)), prefix) is owner
    assert affine([*fleet, R("new")], prefix).address in (owner.address, "new")
    rest = [r for r in fleet if r is not owner]
    for other in rest:
        assert affine([r for r in fleet if r is not other], prefix) is owner


def test_affinity_spreads_and_spills():
    fleet = [R(f"d/{i}") for i in range(8)]
    owners = [affine(fleet, str(i).encode()).address for i in range(4000)]
    counts = [owners.count(r.address) for r in fleet]
    assert min(counts) > 350
    owner = affine(fleet, b"x")
    owner.work = 1000.0
    assert affine(fleet, b"x") is not owner


@pytest.mark.parametrize("policy", list(Policy))
def test_every_policy_balances_equal_requests(policy):
    rng = random.Random(1)  # noqa: S311 - repeatable
    fleet = [R(f"d/{i}") for i in range(5)]
    chooser = Chooser(policy, rng.random)
    for i in range(5000):
        chosen = chooser.choose(fleet, prefix=str(i).encode())
        chosen.work += 1
    works = sorted(r.work for r in fleet)
    assert works[-1] <= works[0] * 1.6


def test_nobody_and_only_one():
    chooser = Chooser(Policy.LEAST_WORK, random.random)
    only = R("a")
    assert chooser.choose([]) is None
    assert chooser.choose([only]) is only


def test_weights_share_the_work():
    fleet = [R("slow", 1.0), R("fast", 3.0)]
    chooser = Chooser(Policy.LEAST_WORK, random.random)
    for _ in range(400):
        chooser.choose(fleet).work += 10
    assert fleet[1].work == pytest.approx(3 * fleet[0].work, rel=0.05)


@pytest.mark.parametrize("policy", list(Policy))
def test_several_proxies_draw_where_one_would_take_the_least(policy):
    """All would run to the same replica by stale load; affinity and turns need none and stay what they are."""
    fleet = [R(f"d/{i}", work=float(i > 0)) for i in range(8)]

    def taken(prefix: bytes) -> list[str]:
        rng = random.Random(1)  # noqa: S311 - repeatable
        several = Chooser(policy, rng.random, several=True)
        return [several.choose(fleet, prefix).address for _ in range(400)]

    keyed, bare = taken(b"x"), taken(b"")
    match policy:
        case Policy.ROUND_ROBIN:
            assert {keyed.count(r.address) for r in fleet} == {50}
        case Policy.PREFIX_AFFINITY:
            assert set(keyed) == {affine(fleet, b"x").address}
            assert len(set(bare)) > 1
        case _:
            assert len(set(keyed)) > 1, "not all to the one that looks idlest"
