"""The concurrent dialects: both legs at once, matched by a key of the request."""

from __future__ import annotations

import asyncio

import pytest

from disaggc.simengine.timing import DecodeTimes, KvTimes, PrefillTimes, Timing
from tests.ports import free_port
from tests.simengine.doubles import PREFILL, Double, ids, run, transfer, until, up

SLOW_LINK = Timing(
    decode=DecodeTimes(batches=(1,), fixed_s=(0.01,), token_s=0.0),
    prefill=PrefillTimes(fixed_s=0.01, token_s=0.0, square_s=0.0),
    kv=KvTimes(setup_s=0.3, bytes_per_s=1e12, bytes_per_token=1.0),
)
TOKENS = [i * 13 + 7 for i in range(120)]


def fetched_from(supply):
    """Decode's parameters for what this prefill supplies."""
    return {
        "do_remote_prefill": True,
        "remote_engine_id": supply.engine_id,
        "remote_host": "127.0.0.1",
        "remote_port": supply.port,
    }


async def both(
    p: Double, d: Double, first: dict, second: dict, *, decode_first: bool, path: str = "/v1/completions"
):
    """Both legs at once with one request id."""
    body = {"model": "m", "prompt": TOKENS, "temperature": 0, "return_token_ids": True}
    headers = {"x_request_id": "abc123"}
    legs = [
        (p, {**body, "max_tokens": 1, "kv_transfer_params": first}),
        (d, {**body, "max_tokens": 8, "kv_transfer_params": second}),
    ]
    if decode_first:
        legs.reverse()
    tasks = []
    for double, leg in legs:
        tasks.append(asyncio.ensure_future(double.post(path, leg, **headers)))
        await asyncio.sleep(0.05)
    replies = await asyncio.gather(*tasks)
    return replies[::-1] if decode_first else replies


@pytest.mark.parametrize("decode_first", [False, True])
def test_push(decode_first):
    async def go():
        mono, p, d = Double(), Double(*transfer("NixlPushConnector")), Double(*transfer("NixlPushConnector"))
        async with up(mono, p, d):
            supply = p.engine.exchange.supply
            second = fetched_from(supply)
            _, reply = await both(p, d, PREFILL, second, decode_first=decode_first)
            assert ids(reply) == ids(await mono.complete(TOKENS))
            await until(lambda: p.leases == 0)
            assert (await d.metrics())["vllm:external_prefix_cache_hits_total"] == len(TOKENS)
            assert p.leaked() == d.leaked() == 0

    run(go())


@pytest.mark.parametrize("decode_first", [False, True])
def test_mooncake(decode_first):
    async def go():
        port = free_port()
        p = Double(
            *transfer("MooncakeConnector", "kv_producer"), env={"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(port)}
        )
        mono, d = Double(), Double(*transfer("MooncakeConnector", "kv_consumer"))
        async with up(mono, p, d):
            first = {**PREFILL, "transfer_id": "xfer-1"}
            second = {"do_remote_prefill": True, "remote_bootstrap_addr": f"http://127.0.0.1:{port}", "transfer_id": "xfer-1",
                      "remote_engine_id": p.engine.exchange.supply.engine_id}  # fmt: skip
            leg, reply = await both(p, d, first, second, decode_first=decode_first)
            assert leg.json["kv_transfer_params"] is None
            assert ids(reply) == ids(await mono.complete(TOKENS))
            await until(lambda: p.leases == 0)
            wrong = await d.complete(
                [1, 2, 3] * 20, kv_transfer_params={**second, "remote_engine_id": "somebody"}
            )
            assert wrong.status == 500

    run(go())


@pytest.mark.parametrize("decode_first", [False, True])
def test_moriio_write(decode_first):
    async def go():
        mono, port = Double(), free_port()
        p = Double(*transfer("MoRIIOConnector", handshake_port=port))
        d = Double(*transfer("MoRIIOConnector", handshake_port=free_port()))
        async with up(mono, p, d):
            first = {**PREFILL, "transfer_id": "tx-1"}
            second = {
                "do_remote_prefill": True,
                "remote_host": "127.0.0.1",
                "remote_handshake_port": port,
                "transfer_id": "tx-1",
            }
            _, reply = await both(p, d, first, second, decode_first=decode_first)
            assert ids(reply) == ids(await mono.complete(TOKENS))

    run(go())


def test_moriio_read():
    async def go():
        flags = transfer("MoRIIOConnector", handshake_port=free_port(), read_mode=True)
        mono, p = Double(), Double(*flags)
        d = Double(*transfer("MoRIIOConnector", handshake_port=free_port(), read_mode=True))
        async with up(mono, p, d):
            params = (
                await p.complete(TOKENS, 1, kv_transfer_params={**PREFILL, "transfer_id": "tx-1"})
            ).json["kv_transfer_params"]
            assert params["transfer_id"] == "tx-1"
            assert ids(await d.complete(TOKENS, kv_transfer_params=params)) == ids(
                await mono.complete(TOKENS)
            )
            await until(lambda: p.leases == 0)

    run(go())


def test_decode_waits_for_a_prefill_that_never_comes_until_its_client_leaves():
    async def go():
        p, d = Double(*transfer("NixlPushConnector")), Double(*transfer("NixlPushConnector"))
        async with up(p, d):
            supply = p.engine.exchange.supply
            second = fetched_from(supply)
            asking = asyncio.ensure_future(d.complete(TOKENS, kv_transfer_params=second))
            await until(lambda: d.engine.scheduler.fetching)
            await asyncio.sleep(0.3)
            assert not asking.done()
            asking.cancel()
            await until(lambda: not d.engine.scheduler.fetching)
            assert d.leaked() == 0
            await until(lambda: not supply._waiters)

    run(go())


def test_a_prefill_that_is_lost_while_it_writes_fails_the_decode(tmp_path):
    async def go():
        (tmp_path / "timing.json").write_text(SLOW_LINK.model_dump_json())
        flags = [
            *transfer("NixlPushConnector"),
            "--time-scale",
            "1",
            "--timing",
            str(tmp_path / "timing.json"),
        ]
        p, d = Double(*flags), Double(*flags)
        async with up(p, d):
            supply = p.engine.exchange.supply
            second = fetched_from(supply)
            legs = asyncio.ensure_future(both(p, d, PREFILL, second, decode_first=True))
            await until(lambda: d.engine.exchange.in_progress)
            supply.close()
            prefilled, decoded = await legs
            assert prefilled.status == 200
            assert decoded.status == 500
            assert (await d.metrics())["vllm:nixl_num_failed_transfers_total"] == 1
            assert d.leaked() == 0

    run(go())
