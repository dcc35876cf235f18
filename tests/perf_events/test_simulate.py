"""Whole runs over real step times: against the closed form of the plan, conservation, seeds, laws."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disaggc.ir.plan import Role, Shape
from disaggc.perf.events import Failure, Front, Load, Offered, Ramp, Run, Stream, simulate
from disaggc.perf.events.cluster import Cluster
from disaggc.perf.events.lengths import Fixed, Shaped
from disaggc.perf.layout import Layout, PoolLayout
from disaggc.perf.predict import predict
from disaggc.perf.stations import Sized
from disaggc.resolve.model import Bound, Lengths
from disaggc.routing.limits import Admission
from disaggc.routing.table import Policy
from tests.effort import examples
from tests.perf.perf_cases import bench, load, moreh, nodes
from tests.perf_events.parts import rng_of

QWEN = "Qwen/Qwen3-32B"
DIRECT = Front()
DEPLOYED = Front(admission=Admission())


def small(*loads, **options):
    """Qwen3-32B at TP2 on H100: four replicas a node."""
    return bench(QWEN, nodes("h100-sxm"), Shape(tp=2), *loads, max_model_len=12288, **options)


def ran(one, layout, offered=None, **options) -> Run:
    return simulate(one.models, one.service, layout, load=offered or Load.of_service(one.service), **options)


# --- the plan's closed form --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("isl", "osl", "concurrency"), [(1024, 1024, 64), (4096, 512, 128), (512, 4096, 96), (8192, 256, 32)]
)
@pytest.mark.parametrize("kind", ["2P2D", "1P3D", "colocated"])
def test_a_closed_loop_settles_where_the_plan_says(isl, osl, concurrency, kind):
    one = small(load(isl=isl, osl=osl, concurrency=concurrency))
    layout = {"2P2D": one.pd(2, 2), "1P3D": one.pd(1, 3), "colocated": one.colocated(4)}[kind]
    expected = predict(one.models, one.service, layout)
    seen = ran(one, layout, Load.bench(isl, osl, concurrency=concurrency, requests=20 * concurrency))
    assert seen.steady is not None
    assert expected.case is not None
    step_s = expected.case.at_corner(1).steady.step_s
    # fixed lengths keep the requests of a closed loop in step with each other, which the closed form spreads out: waves
    # of prompts wait longer and leave decode emptier in between
    assert seen.steady.total_tok_per_s == pytest.approx(expected.total_tok_per_s.value, rel=0.10)
    assert seen.classes[0].tpot.mean == pytest.approx(step_s, rel=0.15)


def test_answers_of_one_length_grow_together_and_run_out_of_memory_together():
    """Sequences are pinned for a batch of all ages; a crowd that starts at once is of one age, so it preempts."""
    one = small(load(isl=512, osl=4096, concurrency=256))
    expected = predict(one.models, one.service, one.pd(2, 2)).output_tok_per_s.value
    alike = ran(one, one.pd(2, 2), Load.bench(512, 4096, concurrency=256, requests=2560))
    mixed = ran(one, one.pd(2, 2), Load.bench(512, 4096, concurrency=256, requests=2560, jitter=0.5))
    assert sum(pool.preemptions for pool in alike.pools) > 100
    assert sum(pool.preemptions for pool in mixed.pools) == 0
    assert alike.steady is not None
    assert 0.75 * expected < alike.steady.output_tok_per_s < 0.95 * expected


@pytest.mark.parametrize("kind", ["2P2D", "colocated"])
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_an_open_loop_sees_the_latencies_of_the_plan(kind, share):
    most = 16.0 if kind == "colocated" else 8.0
    one = small(load(isl=2048, osl=256, rate=most * share))
    layout = one.pd(2, 2) if kind == "2P2D" else one.colocated(4)
    expected = predict(one.models, one.service, layout).classes[0]
    seen = ran(one, layout, Load.of_service(one.service, 6000)).classes[0]
    # the closed form adds medians and takes one mean batch for all replicas
    assert seen.e2e.p50 == pytest.approx(expected.e2e.p50.value, rel=0.10)
    assert seen.ttft.p50 == pytest.approx(expected.ttft.p50.value, rel=0.30)
    assert seen.itl.p50 == pytest.approx(expected.itl.p50.value, rel=0.10)


def test_the_ordering_of_ratios_is_the_plans():
    one = moreh(1024, 8192, 480, 2.0)
    first, second = ran(one, one.pd(1, 4)), ran(one, one.pd(2, 3))
    wanted = [predict(one.models, one.service, x).total_tok_per_s.value for x in (one.pd(1, 4), one.pd(2, 3))]
    assert first.steady is not None
    assert second.steady is not None
    factor = first.steady.total_tok_per_s / second.steady.total_tok_per_s
    assert factor == pytest.approx(wanted[0] / wanted[1], rel=0.03)


# --- laws --------------------------------------------------------------------------------------------------------


def test_a_closed_loop_keeps_littles_law():
    one = small(load(isl=2048, osl=512, concurrency=64))
    seen = ran(one, one.pd(2, 2), Load.bench(2048, 512, concurrency=64, requests=2000))
    # in flight = requests/s x time in the system, over the whole run: exact but for the ramp and the tail
    in_flight = seen.whole.req_per_s * seen.classes[0].e2e.mean
    assert in_flight == pytest.approx(64, rel=0.04)


def test_the_cap_holds_requests_at_the_client_and_their_wait_is_in_no_latency():
    one = small(load(isl=1024, osl=256, concurrency=1))
    alone = ran(one, one.pd(1, 1), Load.bench(1024, 256, concurrency=1, requests=20))
    crowd = ran(one, one.pd(1, 1), Load.bench(1024, 256, concurrency=1, requests=20, rate=100.0))
    assert crowd.classes[0].ttft.p99 == pytest.approx(alone.classes[0].ttft.p99, rel=1e-3)
    assert crowd.whole.to_s == pytest.approx(20 * alone.classes[0].e2e.mean, rel=0.02)


def test_bench_arrivals_take_exactly_requests_over_rate():
    stream = Load.bench(8, 8, rate=4.0, requests=400, burstiness=0.5).streams[0]
    times = [o.at_s for o in stream.offered(rng_of(1))]
    assert times[-1] == pytest.approx(100.0)
    gaps = [b - a for a, b in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    spread = math.sqrt(sum((g - mean) ** 2 for g in gaps) / len(gaps)) / mean
    assert spread == pytest.approx(math.sqrt(2), rel=0.15)


def test_a_ramp_sends_slowly_first():
    stream = Load.bench(8, 8, requests=4000, ramp=Ramp(1.0, 9.0)).streams[0]
    times = [o.at_s for o in stream.offered(rng_of(1))]
    # number n comes at the integral of 1/rate: ln(9)/8 x 4000 in all
    assert times[-1] == pytest.approx(math.log(9) / 8 * 4000, rel=0.05)
    assert times[1000] / times[-1] == pytest.approx(math.log(3) / math.log(9), rel=0.1)


def test_seeds_repeat_and_differ():
    one = small(load(isl=Lengths(1000, 900, 1500, 2500, 0.5), osl=Lengths(200, 150, 400, 900, 0.8), rate=6))
    first, again, other = (ran(one, one.pd(2, 2), seed=s, front=DEPLOYED) for s in (3, 3, 4))
    assert first == again
    assert first != other


def test_drawn_lengths_have_the_figures_they_were_drawn_from():
    given_lengths = Lengths(1000.0, 800.0, 1900.0, 3600.0, 0.7)
    draw, rng = Shaped.of(given_lengths), rng_of(5)
    seen = sorted(draw.draw(rng) for _ in range(40_000))
    assert sum(seen) / len(seen) == pytest.approx(1000, rel=0.03)
    for share, wanted in ((0.5, 800), (0.9, 1900), (0.99, 3600)):
        assert seen[int(share * len(seen))] == pytest.approx(wanted, rel=0.05)


def test_more_replicas_serve_no_less():
    one = small(load(isl=4096, osl=256, concurrency=256))
    offered = Load.bench(4096, 256, concurrency=256, requests=1500)
    served = [ran(one, one.pd(p, 4), offered).whole.total_tok_per_s for p in (1, 2, 4, 8)]
    assert all(b >= a * 0.99 for a, b in pairwise(served))
    assert served[-1] > 1.5 * served[0]


def test_cached_prompts_leave_prefill_room():
    one = small(load(isl=4096, osl=64, rate=4))
    busy = [
        ran(one, one.pd(2, 2), Load((Stream("a", 800, Fixed(4096), Fixed(64), rate=4.0, prefix_hit=hit),)))
        for hit in (0.0, 0.5)
    ]
    assert busy[1].utilisation["prefill"] < 0.65 * busy[0].utilisation["prefill"]


def test_goodput_counts_requests_within_every_bound():
    bounds = (Bound("ttft", 90, 0.9), Bound("e2e", 50, 30.0))
    one = small(load(isl=4096, osl=64, rate=7, bounds=bounds))
    seen = ran(one, one.pd(1, 2), Load.of_service(one.service, 500))
    assert 0 < seen.classes[0].good < 500
    assert seen.goodput_req_per_s == pytest.approx(seen.classes[0].good / seen.whole.to_s)


def test_events_of_a_run_do_not_grow_with_output_length():
    counts = []
    for osl in (128, 4096):
        one = small(load(isl=1024, osl=osl, rate=1.0))
        counts.append(ran(one, one.pd(2, 2), Load.bench(1024, osl, rate=1.0, requests=500)).handled / 500)
    assert counts[1] <= counts[0] * 1.2


# --- conservation, the proxy, failures ---------------------------------------------------------------------------

LAYOUTS = ("1P1D", "2P2D", "colocated", "mixed")


def layout_of(one, kind):
    match kind:
        case "1P1D":
            return one.pd(1, 1)
        case "2P2D":
            return one.pd(2, 2)
        case "colocated":
            return one.colocated(2)
        case _:
            both = one.pd(1, 1).pools
            return Layout("disaggregated", (*both, PoolLayout(Role.COLOCATED, one.group, one.shape, 1)))


@settings(max_examples=examples(40))
@given(
    kind=st.sampled_from(LAYOUTS),
    rate=st.sampled_from([0.5, 5.0, 50.0, math.inf]),
    cap=st.sampled_from([1, 7, math.inf]),
    policy=st.sampled_from(list(Policy)),
    admitted=st.booleans(),
    lease=st.sampled_from([(0.01, "fail"), (0.01, "recompute"), (30.0, "fail")]),
    failures=st.lists(st.tuples(st.floats(0, 20), st.integers(0, 1), st.floats(0.1, 30)), max_size=3),
    seqs=st.sampled_from([2, 64]),
)
def test_every_request_ends_once_and_nothing_stays_behind(
    kind, rate, cap, policy, admitted, lease, failures, seqs
):
    one = small(load(isl=1024, osl=256, rate=5))
    layout = layout_of(one, kind)
    pools = tuple(replace(p, max_seqs=seqs) if p.role is not Role.PREFILL else p for p in layout.pools)
    layout = replace(layout, pools=pools)
    front = Front(
        policy,
        Admission(queue=20) if admitted else None,
        queue_s=5.0,
        lease_s=lease[0],
        load_failure=lease[1],
    )
    rng_lengths = Shaped.of(Lengths(700.0, 500.0, 1500.0, 4000.0, 1.0))
    streams = (
        Stream("a", 60, rng_lengths, Shaped.of(Lengths(80.0, 50.0, 200.0, 400.0, 1.2)), rate=rate, cap=cap),
        Stream("b", 20, Fixed(12), Fixed(1), rate=2.0, priority=3),
    )
    struck = tuple(Failure(at, pool % len(pools), 0, down) for at, pool, down in failures)
    sized = tuple(
        Sized(p, one.models.memory(one.service, p.group, p.role, shape=p.shape)) for p in layout.pools
    )
    cluster = Cluster(
        one.models, one.service, sized, load=Load(streams, struck), seed=2, front=front, corner="likely"
    )
    for failure in struck:
        cluster.fail_at(failure)
    seen = cluster.run(layout, None)
    assert [c.requests for c in seen.classes] == [60, 20]
    for caller in cluster.callers:
        assert len(set(map(id, caller.ended))) == len(caller.ended) == caller.stream.requests
    assert sum(sum(c.losses.values()) for c in seen.classes) == seen.failed
    if not failures and not admitted and lease[0] > 1:
        assert seen.failed == 0
    for pool in cluster.seats:
        for seat in pool:
            assert seat.work == pytest.approx(0, abs=1e-6)
            assert seat.requests == 0
            if seat.engine is not None:
                assert seat.engine.kv_used == pytest.approx(0, abs=1e-6)
                assert not seat.engine.batch.running
            for rank in seat.ranks:
                assert rank.waiting == 0
    for caller in cluster.callers:
        for flight in caller.ended:
            if flight.loss is None:
                assert 0 <= flight.sent_s < flight.first_s <= flight.end_s + 1e-9


def test_a_full_line_refuses_and_says_so():
    one = small(load(isl=1024, osl=2048, concurrency=400))
    tight = Front(admission=Admission(queue=10, max_requests=8), queue_s=5.0)
    seen = ran(one, one.colocated(2), Load.bench(1024, 2048, requests=200), front=tight)
    assert seen.classes[0].losses == {"refused": seen.failed}
    assert 0 < seen.failed < 200


def test_a_failed_replica_takes_its_answers_with_it_and_the_rest_is_tried_again():
    one = small(load(isl=1024, osl=1024, rate=4))
    offered = replace(Load.bench(1024, 1024, rate=4.0, requests=400), failures=(Failure(30.0, 1, 0, 20.0),))
    seen = ran(one, one.pd(2, 2), offered, front=DEPLOYED)
    calm = ran(one, one.pd(2, 2), Load.bench(1024, 1024, rate=4.0, requests=400), front=DEPLOYED)
    assert calm.failed == 0
    assert set(seen.classes[0].losses) == {"replica-failed"}
    # about half of what was running at that time: one of two decode replicas
    running = 4.0 * calm.classes[0].e2e.mean / 2
    assert seen.failed == pytest.approx(running, rel=0.4)
    assert min(m.up for m in seen.pools[1].timeline) == 1


def test_a_failed_prefill_replica_costs_no_answer():
    one = small(load(isl=4096, osl=64, rate=3))
    offered = replace(Load.bench(4096, 64, rate=3.0, requests=300), failures=(Failure(20.0, 0, 0, 30.0),))
    assert ran(one, one.pd(2, 2), offered, front=DEPLOYED).failed == 0


def test_kv_that_waits_longer_than_its_lease_is_lost_or_computed_again():
    one = small(load(isl=2048, osl=512, concurrency=64))
    layout = one.pd(2, 1)
    held = replace(layout, pools=(layout.pools[0], replace(layout.pools[1], max_seqs=4)))
    offered = Load.bench(2048, 512, concurrency=64, requests=100)
    lost = ran(one, held, offered, front=Front(lease_s=1.0, retries=0))
    assert lost.classes[0].losses.keys() == {"lease-expired"}
    again = ran(one, held, offered, front=Front(lease_s=1.0, retries=0, load_failure="recompute"))
    assert again.failed == 0


def test_short_prompts_are_computed_by_decode():
    one = small(load(isl=256, osl=64, rate=4))
    offered = Load.bench(256, 64, rate=4.0, requests=200)
    seen = ran(one, one.pd(1, 2), offered, front=Front(skip_prefill_below=512))
    assert seen.utilisation["prefill"] == 0
    assert seen.failed == 0


def test_policies_are_routings_own():
    """The same mean load spreads evenly in turn; least work follows what is outstanding, so it waits less."""
    lengths = Lengths(2000.0, 600.0, 5000.0, 11000.0, 2.0)
    one = small(load(isl=lengths, osl=64, rate=5))
    offered = Load.of_service(one.service, 2000)
    means = {
        policy: ran(one, one.pd(4, 2), offered, front=Front(policy)).classes[0].ttft.mean
        for policy in (Policy.ROUND_ROBIN, Policy.LEAST_WORK, Policy.POWER_OF_TWO)
    }
    assert means[Policy.LEAST_WORK] < means[Policy.ROUND_ROBIN]
    assert means[Policy.POWER_OF_TWO] < means[Policy.ROUND_ROBIN] * 1.02


def test_a_trace_is_replayed_as_recorded():
    one = small(load(isl=1024, osl=64, rate=1))
    offered = [Offered(100.0 + 7.0 * i, 500 + i, 10 + i) for i in range(20)]
    seen = ran(one, one.pd(1, 1), Load.trace(offered))
    tokens = sum(o.osl for o in offered)
    assert seen.whole.output_tok_per_s * seen.whole.to_s == pytest.approx(tokens)
    assert 7.0 * 19 < seen.whole.to_s < 7.0 * 19 + 5


def test_requests_beyond_the_context_limit_are_refused_and_long_answers_cut():
    one = small(load(isl=1024, osl=64, rate=1))
    offered = [Offered(0.0, 20_000, 10), Offered(1.0, 12_000, 5000)]
    seen = ran(one, one.pd(1, 1), Load.trace(offered))
    assert seen.classes[0].losses == {"too-long": 1}
    assert seen.whole.output_tok_per_s * seen.whole.to_s == pytest.approx(288)


def test_a_layout_that_does_not_fit_says_why():
    one = bench("deepseek-ai/DeepSeek-R1", nodes("h100-sxm"), Shape(tp=2), load(concurrency=8))
    seen = ran(one, one.pd(1, 1), Load.bench(10, 10, requests=1))
    assert seen.reasons
    assert "weights" in seen.reasons[0]


def test_constants_at_their_ends_bracket_the_likely_run():
    one = small(load(isl=2048, osl=512, concurrency=64))
    offered = Load.bench(2048, 512, concurrency=64, requests=600)
    worst, likely, best = (
        ran(one, one.pd(2, 2), offered, corner=c).whole.total_tok_per_s for c in ("worst", "likely", "best")
    )
    assert worst < likely < best
