"""What is cached where, by content: laws of the cache, engines, whole runs, affinity, and layer-wise transfers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.ir.plan import Shape
from disaggc.perf.events import Front, Load, Offered, simulate
from disaggc.perf.events.flight import Flight
from disaggc.perf.events.load import BLOCK_TOKENS
from disaggc.perf.events.network import hidden_s
from disaggc.perf.events.prefix_cache import PrefixCache
from disaggc.resolve.traces import read_requests
from disaggc.routing.table import Policy
from tests.perf.perf_cases import bench, load, nodes
from tests.perf_events.parts import Formula, decode_engine, prefill_engine, run

LONG = 100 * BLOCK_TOKENS


def ask(blocks, extra=100, osl=8, at=0.0) -> Offered:
    return Offered(at, len(blocks) * BLOCK_TOKENS + extra, osl, blocks=tuple(blocks))


def test_only_leading_blocks_count_and_the_last_token_is_always_computed():
    cache = PrefixCache()
    cache.keep((1, 2, 3), LONG)
    assert cache.tokens((1, 2, 9)) == 2 * BLOCK_TOKENS
    assert cache.tokens((2, 3)) == 2 * BLOCK_TOKENS
    assert cache.tokens((9, 1)) == 0
    assert cache.use((1, 2, 3), 3 * BLOCK_TOKENS) == 3 * BLOCK_TOKENS - 1


def test_what_was_used_least_lately_goes_first_and_a_prefix_loses_its_end_first():
    cache = PrefixCache()
    cache.keep((1, 2), LONG)
    cache.keep((3, 4), LONG)
    cache.use((1, 2), LONG)
    cache.keep((5,), 3 * BLOCK_TOKENS)
    assert cache.tokens((1, 2)) == 2 * BLOCK_TOKENS
    assert cache.tokens((3,)) == 0
    cache.keep((6, 7, 8), 2 * BLOCK_TOKENS)
    assert cache.tokens((6, 7, 8)) == 2 * BLOCK_TOKENS


@given(st.lists(st.lists(st.integers(0, 30), max_size=8, unique=True), max_size=40), st.integers(0, 12))
def test_it_never_holds_more_than_its_room_nor_what_it_never_saw(prompts, room):
    cache = PrefixCache()
    seen: set[int] = set()
    for blocks in prompts:
        found = cache.use(blocks, LONG) // BLOCK_TOKENS
        assert set(blocks[:found]) <= seen
        cache.keep(blocks, room * BLOCK_TOKENS)
        seen |= set(blocks)
        assert sum(cache.tokens((b,)) for b in range(31)) <= room * BLOCK_TOKENS


def prompt_time(engine_of, asks) -> list[float]:
    calendar, desk, engine = engine_of
    flights = [Flight(0, a) for a in asks]
    for number, one in enumerate(flights):
        calendar.enter(100.0 * number, lambda now, f: engine.prompt(f, now), one)
    run(calendar)
    ended = desk.prefilled_at or {f: f.first_s for f in flights}
    return [ended[f] - 100.0 * n for n, f in enumerate(flights)]


@pytest.mark.parametrize("kind", ["prefill", "colocated"])
def test_an_engine_computes_what_it_has_not_seen(kind):
    times = Formula(lambda _b, _c: 0.0001, token_s=1e-4)
    engine = prefill_engine(times, budget=1e6) if kind == "prefill" else decode_engine(times, budget=1e6)
    first, again, half, other = prompt_time(
        engine, [ask((1, 2, 3, 4)), ask((1, 2, 3, 4)), ask((1, 2, 8, 9)), ask((5, 6, 7, 8))]
    )
    whole, half_left = (4 * BLOCK_TOKENS + 100) * 1e-4, (2 * BLOCK_TOKENS + 100) * 1e-4
    assert first == pytest.approx(whole, rel=0.01)
    assert again == pytest.approx(100 * 1e-4, rel=0.02)
    assert half == pytest.approx(half_left, rel=0.01)
    assert other == pytest.approx(whole, rel=0.01)


def test_leased_and_running_prompts_leave_less_room_to_cache():
    times = Formula(token_s=1e-4)
    roomy = prompt_time(prefill_engine(times, budget=1e6), [ask(range(8)), ask(range(20, 28)), ask(range(8))])
    tight = prompt_time(
        prefill_engine(times, budget=1e6, kv_tokens=9 * BLOCK_TOKENS),
        [ask(range(8)), ask(range(20, 28)), ask(range(8))],
    )
    assert roomy[2] < 0.05 * roomy[0]
    assert tight[2] == pytest.approx((7 * BLOCK_TOKENS + 100) * 1e-4, rel=0.02), (
        "one block was left of the first"
    )


def qwen(**options):
    group = nodes("h100-sxm")
    return bench(
        "Qwen/Qwen3-32B", group, Shape(tp=2), load(isl=4096, osl=64, rate=4), max_model_len=32768, **options
    )


def talk(sessions: int, turns: int, *, gap_s: float = 0.5) -> Load:
    """Sessions whose prompts grow by two blocks a turn, all of the sessions in turn."""
    offered = [
        ask([1000 * s + b for b in range(2 * (turn + 1))], at=gap_s * (turn * sessions + s))
        for turn in range(turns)
        for s in range(sessions)
    ]
    return Load.trace(offered)


@pytest.mark.parametrize("kind", ["pd", "colocated"])
def test_affinity_finds_more_than_least_work_does(kind):
    one = qwen()
    layout = one.pd(4, 4) if kind == "pd" else one.colocated(8)
    shares = {}
    for policy in (Policy.LEAST_WORK, Policy.PREFIX_AFFINITY):
        seen = simulate(one.models, one.service, layout, load=talk(37, 6), front=Front(policy=policy))
        assert seen.failed == 0
        shares[policy] = seen.classes[0].cached
    most = sum(2 * BLOCK_TOKENS * t for t in range(6)) / sum(
        2 * BLOCK_TOKENS * (t + 1) + 100 for t in range(6)
    )
    assert shares[Policy.PREFIX_AFFINITY] > 0.9 * most
    assert shares[Policy.LEAST_WORK] < 0.7 * shares[Policy.PREFIX_AFFINITY]


def test_one_engine_of_each_kind_finds_all_there_is_and_answers_sooner_for_it():
    one = qwen()
    with_ids = simulate(one.models, one.service, one.pd(1, 1), load=talk(5, 6, gap_s=2))
    offered = tuple(replace(o, blocks=()) for o in talk(5, 6, gap_s=2).streams[0].recorded)
    without = simulate(one.models, one.service, one.pd(1, 1), load=Load.trace(offered))
    most = sum(2 * BLOCK_TOKENS * t for t in range(6)) / sum(
        2 * BLOCK_TOKENS * (t + 1) + 100 for t in range(6)
    )
    assert with_ids.classes[0].cached == pytest.approx(most, rel=1e-3)
    assert without.classes[0].cached == 0
    assert with_ids.classes[0].ttft.mean < 0.6 * without.classes[0].ttft.mean


def test_a_restart_forgets():
    cache = PrefixCache()
    cache.keep((1, 2), LONG)
    cache.clear()
    assert cache.tokens((1, 2)) == 0


def test_the_published_trace_with_block_ids_reuses_prompts(shared_data):
    text = shared_data("data/traces/mooncake/synthetic_trace.jsonl").read_text()
    fits = [r for r in read_requests(text) if r.inputs + r.outputs < 120_000]
    recorded = sorted(fits, key=lambda r: r.at_s)[:400]
    assert all(len(r.blocks) == -(-r.inputs // BLOCK_TOKENS) for r in recorded)
    known: set[int] = set()
    most = 0
    for r in recorded:
        lead = next((n for n, b in enumerate(r.blocks) if b not in known), len(r.blocks))
        most += min(lead * BLOCK_TOKENS, r.inputs)
        known.update(r.blocks)
    one = bench(
        "Qwen/Qwen3-32B", nodes("h200"), Shape(tp=8), load(isl=9000, osl=64, rate=4), max_model_len=131072
    )
    offered = [Offered(100.0 * n, r.inputs, r.outputs, blocks=r.blocks) for n, r in enumerate(recorded)]
    seen = simulate(one.models, one.service, one.colocated(1), load=Load.trace(offered))
    assert seen.failed == 0
    assert seen.classes[0].cached * sum(r.inputs for r in recorded) == pytest.approx(most, rel=0.02)


# --- layers that move while the next ones are computed -------------------------------------------------------------


def test_a_layer_wise_transfer_hides_behind_the_prompt_and_never_wholly():
    one = qwen(fabric="tcp")
    offered = Load.trace([Offered(20.0 * n, 8000, 16) for n in range(20)])
    pulled, pushed = (
        simulate(one.models, one.service, one.pd(1, 1), load=offered, front=Front(layer_wise=flag))
        for flag in (False, True)
    )
    gained = pulled.classes[0].ttft.mean - pushed.classes[0].ttft.mean
    times = one.models.engine(one.service, one.group, one.shape).likely
    prompt_s = times.prefill(8000, 8000**2, 1)
    assert 0 < gained <= prompt_s
    alone = simulate(one.models, one.service, one.colocated(1), load=offered)
    assert pushed.classes[0].ttft.mean > alone.classes[0].ttft.mean, "the last layer still has to come"


def test_where_decode_had_no_room_nothing_moved_early():
    one = Flight(0, Offered(0.0, 100, 10))
    one.last_step_s, one.prefilled_s = 0.5, 10.0
    assert hidden_s(one, 10.003, 0.002) == 0.5
    assert hidden_s(one, 10.5, 0.002) == 0.0
