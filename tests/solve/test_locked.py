from __future__ import annotations

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Role
from disaggc.solve.solution import ServiceSolution, Solution
from disaggc.spec.lock import Lock, LockedPool, LockedService, LockedSlot
from tests.solve.spec_cases import CLASS, CONSTRAINTS, FIVE, solution


def lock_of(found: Solution, **changes: object) -> Lock:
    return Lock(
        disaggc="0", spec="", catalog="", services={s.name: service(s, **changes) for s in found.services}
    )


def service(found: ServiceSolution, *, accelerator: str | None = None) -> LockedService:
    groups: dict[tuple[Role, str, str], list[int]] = {}
    for position, replica in enumerate(found.replicas):
        groups.setdefault((replica.role, replica.group, str(replica.shape)), []).append(position)
    pools = []
    for (role, group, _), positions in groups.items():
        first = found.replicas[positions[0]]
        known = next(p.group.accelerator.id for p in found.layout.pools if p.group.name == group)
        pools.append(
            LockedPool(
                role=role.value,
                group=group,
                accelerator=accelerator or known,
                shape=first.shape,
                replicas=len(positions),
                batch=1.0,
                max_num_seqs=1,
                placement=tuple(_slots(found, i) for i in positions),
            )
        )
    return LockedService(mode=found.mode, ratio="", engine="0.33.0", pools=tuple(pools))


def _slots(found: ServiceSolution, position: int) -> tuple[LockedSlot, ...]:
    return tuple(LockedSlot(node=s.node, devices=s.devices) for s in found.replicas[position].slots)


def test_a_lock_of_the_best_layout_moves_nothing_and_says_nothing() -> None:
    fresh = solution(FIVE)
    again = solution(FIVE, lock=lock_of(fresh))
    assert again.services[0].replicas == fresh.services[0].replicas
    assert again.report.status == "locked"
    assert not again.diagnostics


def test_a_worse_lock_is_kept_and_the_gain_of_leaving_it_is_told() -> None:
    old = solution(FIVE, f"{CONSTRAINTS}prefill.replicas=2")
    now = solution(FIVE, lock=lock_of(old))
    assert now.services[0].replicas == old.services[0].replicas
    (note,) = now.diagnostics
    assert (note.code, note.severity) == ("DGC702", Severity.NOTE)
    assert "2P3D" in note.message
    assert "1P4D" in note.message
    other = next(a for a in now.services[0].alternatives if a.layout.replicas(Role.PREFILL) == 1)
    assert f"{other.relative.ratio.value:.3f}x" in note.message
    assert "build --upgrade" in (note.help or "")
    assert now.services[0].alternatives[0].layout.replicas(Role.PREFILL) == 2
    assert other.relative.ratio.value > 1


def test_a_lock_that_breaks_an_objective_is_left_with_the_reason() -> None:
    old = solution(FIVE, f"{CONSTRAINTS}prefill.replicas=3")
    now = solution(FIVE, f"{CLASS}objectives.e2e_p50=8min", lock=lock_of(old))
    assert now.report.status != "locked"
    assert now.services[0].layout.replicas(Role.PREFILL) == 1
    (told,) = now.diagnostics
    assert told.code == "DGC703"
    assert "e2e_p50" in told.message


def test_a_lock_outside_the_limits_of_a_role_is_left_with_the_reason() -> None:
    old = solution(FIVE)
    few = f"{CLASS}concurrency=100"
    now = solution(
        FIVE, few, f"{CONSTRAINTS}decode.tp=[4]", f"{CONSTRAINTS}prefill.tp=[4]", lock=lock_of(old)
    )
    assert now.report.status != "locked"
    assert {pool.shape.tp for pool in now.services[0].layout.pools} == {4}
    assert [d.code for d in now.diagnostics] == ["DGC703"]
    assert "constraints" in now.diagnostics[0].message


def test_shared_kv_is_kept_as_long_as_it_is_asked_for() -> None:
    wanted = f"{CONSTRAINTS}decode.dcp=[8]"
    old = lock_of(solution(FIVE, wanted))
    kept = solution(FIVE, f"{CONSTRAINTS}decode.dcp=[1, 8]", lock=old)
    assert {pool.shape.dcp for pool in kept.services[0].layout.pools} == {1, 8}
    left = solution(FIVE, lock=old)
    assert {pool.shape.dcp for pool in left.services[0].layout.pools} == {1}
    assert [d.code for d in left.diagnostics] == ["DGC703"]


def test_a_lock_for_other_hardware_is_left() -> None:
    now = solution(FIVE, lock=lock_of(solution(FIVE), accelerator="mi325x"))
    assert [d.code for d in now.diagnostics] == ["DGC703"]
    assert "mi325x" in now.diagnostics[0].message


def test_a_new_service_is_placed_beside_what_is_locked() -> None:
    both = solution("two-services")
    chat = next(s for s in both.services if s.name == "chat")
    only = Lock(disaggc="0", spec="", catalog="", services={"chat": service(chat)})
    now = solution("two-services", lock=only)
    assert next(s for s in now.services if s.name == "chat").replicas == chat.replicas
    taken = [
        (slot.node, d) for s in now.services for r in s.replicas for slot in r.slots for d in slot.devices
    ]
    assert len(taken) == len(set(taken))


def test_a_node_that_went_away_moves_only_its_own_replica() -> None:
    fresh = solution(FIVE, f"{CONSTRAINTS}max_nodes=4")
    lock = lock_of(fresh)
    hosts = (
        "cluster.nodes.mi300x.hosts={gpu-01: 10.0.0.1, gpu-02: 10.0.0.2, gpu-03: 10.0.0.3, gpu-05: 10.0.0.5}"
    )
    now = solution(FIVE, f"{CONSTRAINTS}max_nodes=4", hosts, lock=lock)
    before = {r for r in fresh.services[0].replicas if "gpu-04" not in r.nodes}
    assert before <= set(now.services[0].replicas)
    assert any("gpu-05" in r.nodes for r in now.services[0].replicas)


def test_a_cluster_that_became_too_small_is_named_with_both_numbers() -> None:
    lock = lock_of(solution(FIVE))
    hosts = (
        "cluster.nodes.mi300x.hosts={gpu-01: 10.0.0.1, gpu-02: 10.0.0.2, gpu-03: 10.0.0.3, gpu-05: 10.0.0.5}"
    )
    now = solution(FIVE, hosts, lock=lock)
    (told,) = now.diagnostics
    assert told.code == "DGC703"
    assert "it takes 40 accelerators of `mi300x`, which has 32" in told.message
