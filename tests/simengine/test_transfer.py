"""Moving KV between doubles: what the answers look like, what leases do, when the wrong tokens come with a 200."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from disaggc.simengine.faults import Fault
from tests.simengine.doubles import PREFILL, Double, ids, run, transfer, until, up

SAMPLES = (
    Path(os.environ.get("DISAGGC_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
    / "data/vllm/samples"
)
LENGTHS = (1, 15, 16, 17, 33, 160, 1000)


def prompt(length: int, seed: int = 0) -> list[int]:
    return [seed * 7919 + i * 31 + 5 for i in range(length)]


def sample(name: str) -> dict:
    path = SAMPLES / name
    if not path.exists():
        pytest.skip(f"{path} is not here: set DISAGGC_SHARED to compare with answers of a real vLLM")
    return json.loads(path.read_text())


@pytest.mark.parametrize(("flags", "size"), [((), 1), (("--decode-context-parallel-size", "4"), 4)])
def test_prefill_says_by_how_many_ranks_its_kv_is_shared(flags, size):
    async def go():
        async with up(Double(*transfer(), "--tensor-parallel-size", "4", *flags)) as (double,):
            return await double.prefill(prompt(20))

    told = run(go())
    assert (told["tp_size"], told["dcp_size"]) == (4, size)


@pytest.mark.parametrize(
    ("file", "path"),
    [("prefill_response.json", "/v1/completions"), ("prefill_response_chat.json", "/v1/chat/completions")],
)
def test_prefill_answers_have_the_fields_of_a_real_one(file, path):
    real = sample(file)

    async def go():
        async with up(Double(*transfer())) as (double,):
            body = {
                "model": "m",
                "max_tokens": 1,
                "kv_transfer_params": PREFILL,
                "return_token_ids": "chat" not in path,
            }
            body |= (
                {"messages": [{"role": "user", "content": "hello"}]}
                if "chat" in path
                else {"prompt": prompt(20)}
            )
            return (await double.post(path, body)).json

    ours = run(go())

    def shape(value):
        if isinstance(value, dict):
            return {k: shape(v) for k, v in value.items()}
        return type(value).__name__

    assert set(ours) >= set(real) - {"prompt_text"}
    assert shape(ours["kv_transfer_params"]) == shape(real["kv_transfer_params"])
    assert set(ours["choices"][0]) == set(real["choices"][0])
    assert ours["usage"] | {"prompt_tokens": 0, "total_tokens": 0} == real["usage"] | {
        "prompt_tokens": 0,
        "total_tokens": 0,
    }
    assert ours["choices"][0]["finish_reason"] == "length"
    if "message" in real["choices"][0]:
        assert set(ours["choices"][0]["message"]) == set(real["choices"][0]["message"])


def test_both_ways_give_the_same_tokens_and_the_kv_really_moved():
    async def go():
        mono, p, d = Double(), Double(*transfer(role="kv_producer")), Double(*transfer(role="kv_consumer"))
        async with up(mono, p, d):
            for at, length in enumerate(LENGTHS):
                tokens = prompt(length, at)
                params = await p.prefill(tokens)
                assert p.leases == 1
                split = ids(await d.complete(tokens, kv_transfer_params=params))
                assert split == ids(await mono.complete(tokens))
                await until(lambda: p.leases == 0)
            seen = await d.metrics()
            assert seen["vllm:external_prefix_cache_hits_total"] == sum(LENGTHS)
            assert seen["vllm:prompt_tokens_by_source_total{local_compute}"] == 0
            assert seen["vllm:nixl_bytes_transferred_count"] == len(LENGTHS)
            assert p.leaked() == d.leaked() == 0

    run(go())


def test_block_sizes_may_differ_when_decode_s_is_a_multiple():
    async def go():
        mono, p, d = Double(), Double(*transfer()), Double(*transfer(), "--block-size", "64")
        wrong = Double(*transfer(), "--block-size", "24")
        async with up(mono, p, d, wrong):
            for length in (20, 64, 200, 201):
                tokens = prompt(length, length)
                assert ids(await d.complete(tokens, kv_transfer_params=await p.prefill(tokens))) == ids(
                    await mono.complete(tokens)
                )
            assert (
                await wrong.complete(prompt(100), kv_transfer_params=await p.prefill(prompt(100)))
            ).status == 500

    run(go())


def test_another_prompt_with_these_parameters_gets_the_answer_to_the_first():
    async def go():
        mono, p, d = Double(), Double(*transfer()), Double(*transfer())
        async with up(mono, p, d):
            a, b = prompt(90, 1), prompt(90, 2)
            params = await p.prefill(a)
            mixed = ids(await d.complete(b, kv_transfer_params=params))
            assert mixed == ids(await mono.complete(a))
            assert mixed != ids(await mono.complete(b))

    run(go())


def test_an_expired_lease_gives_wrong_tokens_with_a_200():
    async def go():
        mono, p, d = Double(), Double(*transfer(), "--kv-tokens", "2048"), Double(*transfer())
        async with up(mono, p, d):
            tokens = prompt(900)
            params = await p.prefill(tokens)
            await until(lambda: p.leases == 0)  # 30 s of lease at 20 times the speed
            for seed in range(3, 7):
                await p.complete(prompt(900, seed), 1)  # somebody else's KV takes the blocks
            reply = await d.complete(tokens, kv_transfer_params=params)
            assert reply.status == 200
            assert ids(reply) != ids(await mono.complete(tokens))
            await asyncio.sleep(0.05)
            seen = await p.metrics()
            assert seen["vllm:nixl_num_kv_expired_reqs_total"] == 1
            assert seen["vllm:nixl_num_notifications_after_expiry_total"] == 1

    run(go())


def test_blocks_that_a_busy_prefill_reuses_give_wrong_tokens_with_a_200_by_either_policy():
    async def go():
        mono, p, d = Double(), Double(*transfer()), Double(*transfer())
        async with up(mono, p, d):
            tokens = prompt(900)
            params = await p.prefill(tokens)
            p.engine.do(Fault(kind="reuse-leases"))
            reply = await d.complete(tokens, kv_transfer_params=params)
            assert (reply.status, p.leases) == (200, 0)
            assert ids(reply) != ids(await mono.complete(tokens))
            again = await p.complete(tokens, 8)
            assert ids(again) == ids(await mono.complete(tokens, 8)), "the prefix is not cached any more"
            await asyncio.sleep(0.05)
            assert (await p.metrics())["vllm:nixl_num_notifications_after_expiry_total"] == 1
            assert (await p.metrics())["disaggc_sim_time_scale"] == 20

    run(go())


def test_leases_last_as_long_as_the_time_scale_says_and_heartbeats_renew_them():
    async def go():
        p = Double(*transfer(kv_lease_duration=12))
        d = Double(*transfer(kv_lease_duration=12))
        async with up(p, d):
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await p.prefill(prompt(50))
            await until(lambda: p.leases == 0)
            assert 0.5 < loop.time() - begun < 1.2
            d.engine.scheduler._limit = 0  # decode has the request but no place for it
            params = await p.prefill(prompt(60))
            asking = asyncio.ensure_future(d.complete(prompt(60), kv_transfer_params=params))
            await asyncio.sleep(1.5)
            assert p.leases == 1
            d.engine.scheduler._limit = 8
            d.engine.scheduler._kick()
            assert (await asking).status == 200
            await until(lambda: p.leases == 0)

    run(go())


def test_parameters_are_single_use():
    async def go():
        mono, p, d = Double(), Double(*transfer(), "--kv-tokens", "2048"), Double(*transfer())
        async with up(mono, p, d):
            tokens = prompt(500)
            params = await p.prefill(tokens)
            right = ids(await mono.complete(tokens))
            assert ids(await d.complete(tokens, kv_transfer_params=params)) == right
            await until(lambda: p.leases == 0)
            await p.complete(prompt(1900, 8), 1)
            await d.engine.exchange.close()
            d.engine.scheduler.pool.reset()
            again = await d.complete(tokens, kv_transfer_params=params)
            assert again.status == 200
            assert ids(again) != right

    run(go())


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_refused_request_frees_prefill_s_kv(path):
    async def go():
        p, d = Double(*transfer()), Double(*transfer())
        async with up(p, d):
            for change, status in (({"model": "disaggc-release"}, 404), ({"max_tokens": 100000}, 400)):
                params = await p.prefill(prompt(50))
                body = {
                    "model": "m",
                    "prompt": "x",
                    "messages": [{"role": "user", "content": "."}],
                    "max_tokens": 1,
                }
                reply = await d.post(path, {**body, **change, "kv_transfer_params": params})
                assert reply.status == status
                await until(lambda: p.leases == 0)
            params = await p.prefill(prompt(50))
            assert (await d.post(path, {**body, "n": "two", "kv_transfer_params": params})).status == 400
            await asyncio.sleep(0.1)
            assert p.leases == 1  # refused before vLLM's own code, nobody was told

    run(go())


def test_a_client_that_leaves_before_the_read_frees_prefill_s_kv():
    async def go():
        p, d = Double(*transfer()), Double(*transfer())
        async with up(p, d):
            d.engine.scheduler._limit = 0
            params = await p.prefill(prompt(50))
            asking = asyncio.ensure_future(d.complete(prompt(50), kv_transfer_params=params))
            await until(lambda: d.engine.scheduler.waiting)
            asking.cancel()
            await until(lambda: p.leases == 0)
            assert d.leaked() == 0

    run(go())


@pytest.mark.parametrize("stream", [False, True])
def test_a_load_that_fails_is_an_error_or_is_computed_again(stream):
    async def go():
        p, strict, kind, mono = (
            Double(*transfer()),
            Double(*transfer()),
            Double(*transfer(policy="recompute")),
            Double(),
        )
        async with up(p, strict, kind, mono):
            params = {**await p.prefill(prompt(50)), "remote_port": 1}
            reply = await strict.complete(prompt(50), kv_transfer_params=params, stream=stream)
            if stream:
                assert reply.status == 200
                assert reply.events[0]["error"]["code"] == 500
            else:
                assert reply.status == 500
                assert reply.json["error"]["type"] == "InternalServerError"
            assert ids(await kind.complete(prompt(50), kv_transfer_params=params)) == ids(
                await mono.complete(prompt(50))
            )
            assert (await kind.metrics())["vllm:nixl_num_failed_transfers_total"] == 1
            assert (await strict.get("/health")).status == 200
            assert strict.leaked() == kind.leaked() == 0

    run(go())


def test_versions_and_models_must_be_equal_and_only_requests_show_it():
    async def go():
        p, other = Double(*transfer()), Double(*transfer(), "--engine-version", "0.32.0")
        path, loose = (
            Double(*transfer(), model="/models/tiny"),
            Double(*transfer(enforce_handshake_compat=False), "--engine-version", "0.32.0"),
        )
        async with up(p, other, path, loose):
            for double, status in ((other, 500), (path, 500), (loose, 200)):
                reply = await double.complete(prompt(50), kv_transfer_params=await p.prefill(prompt(50)))
                assert reply.status == status
                assert (await double.get("/health")).status == 200

    run(go())


@pytest.mark.parametrize(
    "change", [{"remote_block_ids": None}, {"remote_engine_id": None}, {"remote_host": None}]
)
def test_mangled_parameters_are_a_silent_local_prefill(change):
    async def go():
        mono, p, d = Double(), Double(*transfer()), Double(*transfer())
        async with up(mono, p, d):
            params = {**await p.prefill(prompt(80)), **change}
            assert ids(await d.complete(prompt(80), kv_transfer_params=params)) == ids(
                await mono.complete(prompt(80))
            )
            seen = await d.metrics()
            assert seen["vllm:external_prefix_cache_hits_total"] == 0
            assert seen["vllm:prompt_tokens_by_source_total{local_compute}"] == 80

    run(go())


def test_local_prefix_hits_are_not_fetched_again():
    async def go():
        mono, p, d = Double(), Double(*transfer()), Double(*transfer())
        async with up(mono, p, d):
            await d.complete(prompt(160))
            longer = prompt(160) + prompt(40, 9)
            assert ids(await d.complete(longer, kv_transfer_params=await p.prefill(longer))) == ids(
                await mono.complete(longer)
            )
            assert (await d.metrics())["vllm:external_prefix_cache_hits_total"] == 40

    run(go())


def test_a_first_token_that_ends_by_itself_is_kept_by_nixl_only():
    async def go():
        p, m = (
            Double(*transfer()),
            Double(*transfer("MooncakeConnector"), env={"VLLM_MOONCAKE_BOOTSTRAP_PORT": "0"}),
        )
        async with up(p, m):
            stops = {"vllm_xargs": {"sim_tokens": 1}}
            assert (await p.complete(prompt(50), 5, kv_transfer_params=PREFILL, **stops)).json[
                "kv_transfer_params"
            ] is not None
            assert p.leases == 1
            params = {**PREFILL, "transfer_id": "x"}
            await m.complete(prompt(50), 5, kv_transfer_params=params, **stops)
            assert m.leases == 0
            await m.complete(prompt(50), 1, kv_transfer_params=params)
            assert m.leases == 1

    run(go())


def test_expiring_leases_on_demand_and_wrong_parameters():
    async def go():
        p, d, mono = Double(*transfer()), Double(*transfer()), Double()
        async with up(p, d, mono):
            await p.prefill(prompt(50))
            p.engine.do(Fault(kind="expire-leases"))
            assert p.leases == 0
            p.engine.faults.switch_on(Fault(kind="null-params", when="working", leg="prefill"))
            assert await p.prefill(prompt(50)) is None
            p.engine.faults.switch_on(Fault(kind="other-blocks", when="working", leg="prefill"))
            params = await p.prefill(prompt(300, 3))
            assert ids(await d.complete(prompt(300, 3), kv_transfer_params=params)) != ids(
                await mono.complete(prompt(300, 3))
            )

    run(go())
