"""What of a table of administration outlives another routing file: drains of engines that are still the same."""

from __future__ import annotations

import pytest

from disaggc.ir.plan import Role
from disaggc.routing.live import carried, draining
from disaggc.routing.table import Dialect, PoolEntry, ReplicaEntry, ReplicaState, RoutingTable

D0, D1 = "chat/decode/0", "chat/decode/1"


def table(
    prefills: int, decodes: int, *, drained: tuple[str, ...] = (), host: str = "h", **more
) -> RoutingTable:
    def pool(role: str, count: int) -> PoolEntry:
        addresses = [f"chat/{role}/{i}" for i in range(count)]
        entries = [
            ReplicaEntry(
                address=address, host=host, port=1000 + i, cohort="c",
                state=ReplicaState.DRAINING if address in drained else ReplicaState.ACTIVE,
            )
            for i, address in enumerate(addresses)
        ]  # fmt: skip
        return PoolEntry(address=f"chat/{role}", role=Role(role), replicas=tuple(entries))

    pools = (pool("prefill", prefills), pool("decode", decodes))
    return RoutingTable(
        service="chat",
        generation=1,
        models=("m",),
        dialect=Dialect.NIXL,
        max_model_len=99,
        pools=pools,
        **more,
    )


def test_a_drained_engine_stays_drained_and_all_else_is_the_files():
    found = carried(table(1, 3, retries=5), table(1, 2, drained=(D1,)), (D1,))
    assert (draining(found), found.retries) == ({D1}, 5)
    assert [len(pool.replicas) for pool in found.pools] == [1, 3]


def test_what_administration_did_not_drain_is_as_the_file_says():
    assert carried(table(1, 2), table(1, 2, drained=(D1,)), ()) == table(1, 2)
    assert draining(carried(table(1, 2, drained=(D0,)), table(1, 2), ())) == {D0}


@pytest.mark.parametrize("file", [table(1, 2, host="other"), table(1, 1)])
def test_an_address_that_is_another_engine_or_gone_is_not_drained(file):
    assert carried(file, table(1, 2, drained=(D1,)), (D1,)) == file


def test_a_role_that_had_somebody_keeps_somebody():
    assert carried(table(1, 1), table(1, 2, drained=(D0,)), (D0,)) == table(1, 1)
    shrunk = carried(table(1, 2), table(1, 3, drained=(D0, D1)), (D0, D1))
    assert draining(shrunk) == set()


def test_a_role_that_had_nobody_still_has_nobody():
    assert draining(carried(table(1, 1), table(1, 1, drained=(D0,)), (D0,))) == {D0}


def test_in_a_flexible_pool_the_roles_are_those_of_the_new_split():
    def flexible(split: tuple[int, int], *drained: str) -> RoutingTable:
        (_, decode), plain = table(0, 3, drained=drained).pools, table(0, 3, drained=drained)
        pool = PoolEntry(address="chat/decode", role=Role.FLEXIBLE, replicas=decode.replicas, split=split)
        return plain.model_copy(update={"pools": (pool,)})

    assert draining(carried(flexible((1, 2)), flexible((2, 1), D0), (D0,))) == set(), (
        "the only one to prefill"
    )
    assert draining(carried(flexible((2, 1)), flexible((1, 2), D1), (D1,))) == {D1}
