import asyncio
import json
from collections import deque

import pytest

from disaggc.proxy.board import Total
from disaggc.proxy.dialects import handover, params_fault, params_value, protocol_of
from disaggc.routing.table import Dialect, KvEndpoint, ReplicaEntry
from tests.proxy.engine import Engine
from tests.proxy.harness import Stack, prompt, run

CONCURRENT = ["nixl-push", "mooncake", "moriio-write"]
GOOD = {
    "do_remote_prefill": True,
    "remote_block_ids": [[1]],
    "remote_engine_id": "e",
    "remote_host": "h",
    "remote_port": 1,
}


def entry(name, host="10.0.0.1"):
    kv = KvEndpoint(
        host=host,
        side_channel_port=5600,
        bootstrap_port=8998,
        notify_port=61005,
        engine_id=f"id-{name[0]}",
        dp_rank=2,
    )
    return ReplicaEntry(address=name, host=host, port=8000, cohort="a", kv=kv, tp=4, dp=2)


def both(dialect):
    protocol = protocol_of(dialect)
    hand = handover(protocol, "req", entry("p"), decode=entry("d", "10.0.0.2"))
    decode = protocol.decode_params(hand) if protocol.decode_params else None
    return protocol, hand, dict(protocol.prefill_params(hand)), decode


def test_push_names_the_prefill_engine_and_one_request_id():
    protocol, hand, prefill, decode = both(Dialect.NIXL_PUSH)
    assert prefill["do_remote_decode"] is True
    assert (decode["remote_engine_id"], decode["remote_host"], decode["remote_port"]) == (
        "id-p",
        "10.0.0.1",
        5600,
    )
    assert decode["remote_request_id"] == hand.request_id == protocol.engine_request_id(hand)
    assert hand.request_id.startswith("req.")


def test_mooncake_pairs_by_transfer_id():
    protocol, _, prefill, decode = both(Dialect.MOONCAKE)
    assert prefill["transfer_id"] == decode["transfer_id"]
    assert decode["remote_bootstrap_addr"] == "http://10.0.0.1:8998"
    assert protocol.keeps_only_capped


@pytest.mark.parametrize("dialect", [Dialect.MORIIO_READ, Dialect.MORIIO_WRITE])
def test_moriio_names_both_ends(dialect):
    protocol, hand, prefill, _ = both(dialect)
    assert (prefill["remote_host"], prefill["remote_handshake_port"], prefill["remote_notify_port"]) == (
        "10.0.0.2",
        5600,
        61005,
    )
    said = protocol.engine_request_id(hand)
    assert said.startswith(
        "___prefill_addr_host:10.0.0.1,handshake:5600,notify:61005___decode_addr_host:10.0.0.2,"
    )
    assert len(said.rsplit("_", 1)[1]) == 32


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        (None, "no kv"), ([], "no kv"), ({}, "remote_block_ids"), (GOOD, None), ({**GOOD, "remote_host": None}, "remote_host"),
        ({**GOOD, "remote_block_ids": []}, "remote_block_ids"), ({**GOOD, "do_remote_prefill": False}, "do_remote_prefill"),
    ],
)  # fmt: skip
def test_what_decode_cannot_use_is_a_failed_prefill(params, fault):
    said = params_fault(params, Dialect.NIXL)
    assert said is None if fault is None else fault in said


def test_params_value_is_json():
    assert json.loads(bytes(params_value({"a": 1}))) == {"a": 1}


@pytest.mark.parametrize("dialect", CONCURRENT)
def test_both_legs_at_once(dialect):
    async def go():
        stack = Stack(prefills=[Engine("p0", prefill_s=0.2)], table={"dialect": dialect})
        async with stack.up() as s:
            asking = asyncio.ensure_future(s.ask(prompt(stop=["x"], stream=True)))
            await asyncio.sleep(0.1)
            assert s.decodes[0].seen, "decode is asked while prefill still works"
            assert (await asking).status == 200
            first, second = s.prefills[0].seen[0], s.decodes[0].seen[0]
            assert first["headers"]["x-request-id"] == second["headers"]["x-request-id"]
            if dialect != "nixl-push":
                assert first["body"]["ignore_eos"] is True
                assert "stop" not in first["body"]
                assert first["headers"]["x-data-parallel-rank"] == "0"
            assert second["body"]["stop"] == ["x"]
            await s.quiet()

    run(go())


@pytest.mark.parametrize("dialect", CONCURRENT)
def test_a_failed_prefill_ends_the_waiting_decode(dialect):
    async def go():
        stack = Stack(prefills=[Engine("p0", script=deque([500])), Engine("p1")], table={"dialect": dialect})
        async with stack.up() as s:
            s.decodes[0].script.append("hang")
            replies = [await s.ask(prompt(stream=True)) for _ in range(2)]
            assert {r.status for r in replies} == {200}
            await s.quiet()
            await asyncio.sleep(0.05)  # the engine takes notice a pass of the loop later, from Python 3.12 on
            assert s.decodes[0].running == 0
            ids = [r["headers"]["x-request-id"] for r in s.decodes[0].seen if r["body"]["model"] == "m"]
            assert len(ids) == len(set(ids))

    run(go())


def test_refused_prefill_is_the_answer_and_decode_is_stopped():
    async def go():
        stack = Stack(table={"dialect": "mooncake"})
        async with stack.up() as s:
            s.prefills[0].script.append(400)
            s.decodes[0].script.append("hang")
            assert (await s.ask(prompt())).status == 400
            await s.quiet()
            await asyncio.sleep(0.05)
            assert s.decodes[0].running == 0

    run(go())


def test_moriio_read_waits_for_prefill():
    async def go():
        async with Stack(table={"dialect": "moriio-read"}).up() as s:
            assert (await s.ask(prompt())).status == 200
            assert s.decodes[0].seen[0]["body"]["kv_transfer_params"]["remote_block_ids"]
            assert s.pinned == 0
            assert s.total(Total.RELEASES) == 0

    run(go())


def test_colocated_engines_need_no_dialect():
    async def go():
        stack = Stack(prefills=[], table={"dialect": "none"})
        table = stack.routing
        stack.routing = lambda *a, **k: (
            (t := table(*a, **k)) and {**t, "pools": [{**t["pools"][0], "role": "colocated"}]}
        )
        async with stack.up() as s:
            assert (await s.ask(prompt(stream=True))).status == 200
            assert "kv_transfer_params" not in s.decodes[0].seen[0]["body"]

    run(go())
