from hypothesis import given
from hypothesis import strategies as st

from disaggc.emit.engine_part import engine_parts
from disaggc.ir.plan import Role
from disaggc.solve.lower.lifecycle import KEEP_ALIVE_S, LEASE_FLOOR_S, PROXY_IDLE_S, drain, lease, timings
from tests.solve.spec_cases import CONSTRAINTS, FIVE, plan

SECONDS = st.floats(0, 5000)


@given(
    st.sampled_from(Role),
    st.sampled_from(["nvidia", "amd", "cpu"]),
    st.integers(1, 600),
    st.integers(1, 7200),
)
def test_nothing_is_killed_before_it_could_finish(role, vendor, lease_s, drain_s):
    found = timings(role, vendor, lease_s=lease_s, drain_s=drain_s, weight_bytes=1e12)
    assert found.grace_s > found.pre_stop_s + found.shutdown_s + found.worker_exit_s
    assert found.shutdown_s > 0
    if role in (Role.PREFILL, Role.FLEXIBLE):
        assert found.shutdown_s > lease_s
    if role is not Role.PREFILL:
        assert found.shutdown_s >= drain_s


def test_rocm_workers_get_longer_to_exit():
    of = {
        v: timings(Role.DECODE, v, lease_s=30, drain_s=60, weight_bytes=0).worker_exit_s
        for v in ("nvidia", "amd")
    }
    assert of == {"nvidia": 5, "amd": 15}


@given(SECONDS, st.floats(0, 60))
def test_an_automatic_lease_outlasts_the_slow_path(ttft, transfer):
    found = lease("auto", ttft, transfer)
    assert found >= LEASE_FLOOR_S
    assert found >= min(300, 2 * (ttft + transfer))


def test_a_lease_the_user_sets_is_kept():
    assert lease(45.0, 1000.0, 1.0) == 45


@given(SECONDS)
def test_an_automatic_drain_outlasts_p99(e2e):
    assert drain("auto", e2e) > e2e


def test_engines_keep_connections_longer_than_the_proxy_idles():
    assert KEEP_ALIVE_S > PROXY_IDLE_S


def test_another_ratio_of_a_flexible_pool_restarts_no_engine():
    def lines(prefills: int) -> list[str]:
        made, _ = plan(FIVE, f"{CONSTRAINTS}mode=flexible", f"{CONSTRAINTS}prefill.replicas={prefills}")
        assert made.services[0].flexible_ratio.prefill == prefills
        return [repr((part.words(repr), part.replica.env)) for part in engine_parts(made)]

    assert lines(1) == lines(2)
    made, _ = plan(FIVE, f"{CONSTRAINTS}mode=flexible", "rollout.drain_timeout=600s")
    assert {pool.timings.shutdown_s for pool in made.services[0].pools} == {600}
