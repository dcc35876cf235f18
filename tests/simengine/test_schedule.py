"""Batches, chunks, blocks and the time they take."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disaggc.simengine.blocks import BlockPool, Content, chained, context_of
from disaggc.simengine.timing import (
    DEFAULT,
    DecodeTimes,
    KvTimes,
    PrefillTimes,
    Timing,
    TimingError,
    read_timing,
)
from disaggc.simengine.tokens import digests, tokenize
from tests.effort import examples
from tests.simengine.doubles import Double, ids, run, transfer, until, up

TABLE = Timing(
    decode=DecodeTimes(
        batches=(1, 10), fixed_s=(0.02, 0.05), token_s=1e-6, window_tokens=100, window_token_s=1e-5
    ),
    prefill=PrefillTimes(fixed_s=0.01, token_s=1e-4, square_s=1e-8, floor_s=0.05, mixed_s=0.002, kappa=1.5),
    kv=KvTimes(setup_s=0.001, bytes_per_s=1e9, bytes_per_token=1e5),
    ranks=2,
)


def test_step_times():
    assert TABLE.decode_s(1, 0, 0) == 0.02
    assert TABLE.decode_s(4, 1000, 400) == pytest.approx(0.03 + 0.001 + 0.004)
    assert TABLE.decode_s(20, 0, 0) == pytest.approx(0.05 + 10 * 0.03 / 9)
    assert TABLE.step_s(0, 0, 0, prompt=2000, squares=1e6) == pytest.approx(0.01 + (0.2 + 0.01) / 2)
    assert TABLE.step_s(0, 0, 0, prompt=1, squares=1) == 0.05
    assert TABLE.step_s(1, 0, 0, prompt=100, squares=0) == pytest.approx(1.5 * 0.02 + 0.002 + 0.005)
    assert TABLE.transfer_s(1000) == pytest.approx(0.1)
    assert read_timing(TABLE.model_dump_json()) == TABLE


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", DEFAULT.model_dump_json().replace('"batches":[1,', '"batches":[999,')]
)
def test_what_is_no_table(text):
    with pytest.raises(TimingError):
        read_timing(text)


def measure(flags: list[str], *asks):
    async def go():
        async with up(Double(*flags)) as (double,):
            begun = asyncio.get_running_loop().time()
            await asyncio.gather(*(double.complete(p, n) for p, n in asks))
            return asyncio.get_running_loop().time() - begun

    return run(go())


@pytest.mark.parametrize("scale", [2.0, 10.0])
def test_a_request_takes_the_time_of_its_steps(tmp_path, scale):
    (tmp_path / "t.json").write_text(TABLE.model_dump_json())
    flags = ["--timing", str(tmp_path / "t.json"), "--time-scale", str(scale)]
    expected = (
        0.01 + (1000 * 1e-4 + 1e6 * 1e-8) / 2 + sum(0.02 + (1000 + i) * 1e-6 + 1e-3 for i in range(1, 40))
    ) / scale
    assert measure(flags, (list(range(1000)), 40)) == pytest.approx(expected, rel=0.2, abs=0.03)


def test_a_long_prompt_is_computed_in_chunks_and_others_go_on():
    async def go():
        double = Double("--max-num-batched-tokens", "128", "--max-model-len", "8192", "--time-scale", "1")
        async with up(double):
            short = asyncio.ensure_future(double.complete("hello", 200))
            await until(lambda: double.engine.scheduler.decoding)
            sequence = double.engine.scheduler.decoding[0]
            long = asyncio.ensure_future(double.complete(list(range(4000)), 1))
            await until(lambda: double.engine.scheduler.prefilling)
            before = sequence.generated
            await until(lambda: not double.engine.scheduler.prefilling)
            assert sequence.generated - before >= 4000 // 128 - 1
            await long
            short.cancel()

    run(go())


def test_no_more_sequences_than_allowed_and_none_is_lost():
    async def go():
        double = Double("--max-num-seqs", "3")
        async with up(double):
            peak = 0
            tasks = [asyncio.ensure_future(double.complete([i] * 50, 10)) for i in range(12)]
            while not all(t.done() for t in tasks):
                peak = max(peak, double.engine.scheduler.running)
                await asyncio.sleep(0.001)
            assert peak == 3
            assert [len(ids(t.result())) for t in tasks] == [10] * 12

    run(go())


def test_preemption_computes_again_and_changes_no_token():
    async def go():
        roomy, tight = Double(), Double("--kv-tokens", "2048", "--no-enable-prefix-caching")
        async with up(roomy, tight):
            prompts = [[i] * 500 for i in range(4)]
            expected = [ids(await roomy.complete(p, 200)) for p in prompts]
            got = await asyncio.gather(*(tight.complete(p, 200) for p in prompts))
            assert [ids(g) for g in got] == expected
            assert (await tight.metrics())["vllm:num_preemptions_total"] > 0
            assert tight.engine.scheduler.pool.used == 0

    run(go())


def test_a_client_that_leaves_ends_its_sequence():
    async def go():
        double = Double(*transfer())
        async with up(double):
            asking = asyncio.ensure_future(double.complete("hello", 2000, stream=True))
            await until(lambda: double.engine.scheduler.decoding)
            asking.cancel()
            await until(lambda: not list(double.engine.scheduler.everything()))
            assert double.engine.scheduler.pool.used == 0
            assert not double.engine.frontend.open

    run(go())


def test_a_block_knows_what_it_follows():
    whole = chained(digests(tokenize("a" * 400), 16))
    other = chained(digests(tokenize("b" * 400), 16))
    assert context_of(whole) == whole[-1].digest
    assert context_of([*whole[:3], other[3], *whole[4:]]) != whole[-1].digest
    assert context_of(whole[1:]) != whole[-1].digest
    assert context_of(whole) == context_of(chained(digests(tokenize("a" * 400), 64)))


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=60))
def test_the_pool_never_gives_a_block_twice(steps):
    pool, held = BlockPool(12, caching=True), []
    for what, number in steps:
        if what < 2 and number <= pool.free:
            keys = [bytes([number, i] * 4) for i in range(number)]
            hits = pool.hits(keys) if number <= pool.free else []
            if number - len(hits) > pool.free:
                pool.give_back(hits)
                continue
            blocks = hits + pool.take(number - len(hits))
            for block, key in zip(blocks[len(hits) :], keys[len(hits) :], strict=True):
                pool.write(block, Content(key, key), key)
            assert [pool.content(b).digest for b in blocks] == keys
            held.append(blocks)
        elif held:
            pool.give_back(held.pop(number % len(held)))
        assert pool.used == len({b for blocks in held for b in blocks})
    for blocks in held:
        pool.give_back(blocks)
    assert pool.used == 0
