"""Canaries act: a pair whose KV does not move, or is wrong, serves nobody until canaries over it are good again."""

from __future__ import annotations

import contextlib
import json
import os
import signal

import pytest

from disaggc.proxy.canaries import PairStanding, pairs_in_turn
from disaggc.proxy.canary import OK, Canary, Finding, Verdict
from disaggc.proxy.engine_session import engine_session
from disaggc.routing.limits import Health
from disaggc.routing.table import ReplicaEntry, load_table
from disaggc.simengine.faults import Fault, Kind, When
from tests.ports import free_port
from tests.proxy.harness import Stack, prompt
from tests.proxy.paired import Engines
from tests.proxy.test_control import Proxy, eventually
from tests.simengine.doubles import run, transfer

HEALTH = {
    "interval_s": 0.05, "timeout_s": 1.0, "eject_after": 2, "readmit_after": 2, "canary_s": 0.2, "open_s": 0.2,
}  # fmt: skip
LONG = " ".join(f"w{i:03}" for i in range(60))


@contextlib.asynccontextmanager
async def proxied(tmp_path, prefills: int, decodes: int, *, plain_decodes: int = 0):
    """Doubles behind a proxy that sends canaries five times a second."""
    stack = Stack(
        prefills=[Engines(*transfer()) for _ in range(prefills)],
        decodes=[Engines(*transfer()) for _ in range(decodes)] + [Engines() for _ in range(plain_decodes)],
        table={"health": HEALTH, "max_model_len": 2048},
    )
    async with Proxy(stack, tmp_path, 2).up() as p:
        yield stack, p


async def pairs(p: Proxy) -> dict[tuple[str, str], dict]:
    async with p.session.get("/admin/canaries") as answer:
        return {(c["prefill"][-1], c["decode"][-1]): c for c in (await answer.json())["pairs"]}


def apart(p: Proxy, *wanted: tuple[str, str]):
    async def there() -> bool:
        return {pair for pair, said in (await pairs(p)).items() if said["apart"]} == set(wanted)

    return there


def text_of(reply) -> str:
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]["text"]


async def asked(stack: Stack, number: int) -> str:
    return text_of(
        await stack.ask(prompt(prompt=f"{number} {LONG}", max_tokens=8, temperature=0), "/v1/completions")
    )


def test_wrong_blocks_take_one_prefill_out_and_it_comes_back(tmp_path):
    async def go():
        alone = Engines()
        async with proxied(tmp_path, 2, 2) as (stack, p):
            await alone.start()
            stack.prefills[1].breaks(Kind.OTHER_BLOCKS, When.ARRIVAL, "prefill")
            await eventually(apart(p, ("1", "0"), ("1", "1")))
            assert await p.metric("pair_apart") == 2
            assert "its KV is wrong" in (await pairs(p))["1", "0"]["result"]
            for number in range(8):
                right = text_of(await alone.complete(f"{number} {LONG}", 8))
                assert await asked(stack, number) == right
            assert sum([await d.fetched() for d in stack.decodes]) > 0
            stack.prefills[1].engine.faults.clear()
            await eventually(apart(p))
            assert await p.metric("pair_apart") == 0
            await alone.stop()

    run(go())


def test_a_decode_that_prefills_alone_is_left_out(tmp_path):
    async def go():
        async with proxied(tmp_path, 1, 1, plain_decodes=1) as (stack, p):
            await eventually(apart(p, ("0", "1")))
            assert "no KV moved" in (await pairs(p))["0", "1"]["result"]
            before = await stack.decodes[0].fetched()
            for number in range(6):
                await asked(stack, number)
            tokens = len(f"0 {LONG}") // 4
            assert await stack.decodes[0].fetched() - before >= 6 * tokens

    run(go())


@pytest.mark.parametrize(
    ("kind", "when", "words"),
    [
        (Kind.NULL_PARAMS, When.ARRIVAL, "kv_transfer_params"),
        (Kind.ERROR_200, When.FIRST, "200 with an error"),
        (Kind.STATUS, When.ARRIVAL, "prefill answered 500"),
    ],
)
def test_a_prefill_that_fails_is_left_out(tmp_path, kind, when, words):
    async def go():
        async with proxied(tmp_path, 2, 1) as (stack, p):
            stack.prefills[0].breaks(kind, when, "prefill")
            await eventually(apart(p, ("0", "0")))
            assert words in (await pairs(p))["0", "0"]["result"]
            for number in range(4):
                await asked(stack, number)
            stack.prefills[0].engine.faults.clear()
            await eventually(apart(p))

    run(go())


def test_a_decode_that_answers_errors_is_left_out(tmp_path):
    async def go():
        async with proxied(tmp_path, 1, 2) as (stack, p):
            stack.decodes[1].breaks(Kind.ERROR_200, When.FIRST, "decode")
            await eventually(apart(p, ("0", "1")))
            for number in range(4):
                await asked(stack, number)

    run(go())


def test_without_a_good_pair_decode_answers_alone_and_right(tmp_path):
    async def go():
        alone = Engines()
        async with proxied(tmp_path, 1, 1) as (stack, p):
            await alone.start()
            stack.prefills[0].breaks(Kind.OTHER_BLOCKS, When.ARRIVAL, "prefill")
            await eventually(apart(p, ("0", "0")))
            before = await stack.decodes[0].fetched()
            for number in range(4):
                assert await asked(stack, number) == text_of(await alone.complete(f"{number} {LONG}", 8))
            assert await p.metric("prefill_remote_total") == 0
            stack.prefills[0].engine.faults.clear()
            await eventually(apart(p))
            await asked(stack, 5)
            assert await stack.decodes[0].fetched() > before
            await alone.stop()

    run(go())


def test_a_worker_that_starts_again_keeps_the_pairs_apart(tmp_path):
    async def go():
        async with proxied(tmp_path, 1, 1) as (stack, p):
            stack.prefills[0].breaks(Kind.OTHER_BLOCKS, When.ARRIVAL, "prefill")
            await eventually(apart(p, ("0", "0")))
            first, second = await p.children()
            os.kill(first, signal.SIGKILL)
            os.kill(second, signal.SIGKILL)

            async def back():
                return await p.status("/health") == 200 and not {first, second} & set(await p.children())

            await eventually(back)
            for number in range(4):
                await asked(stack, number)
            assert await p.metric("prefill_remote_total") == 0

    run(go())


def test_an_engine_that_was_busy_has_its_next_canary_soon(tmp_path):
    async def go():
        stack = Stack(
            prefills=[Engines(*transfer())],
            decodes=[Engines(*transfer())],
            table={"health": {**HEALTH, "canary_s": 60}, "max_model_len": 2048},
        )
        faults = stack.decodes[0].engine.faults
        faults.switch_on(Fault(kind=Kind.STATUS, status=503, leg="decode", count=None))
        async with Proxy(stack, tmp_path, 1).up() as p:

            def says(result: str):
                async def it() -> bool:
                    return [c["result"] for c in (await pairs(p)).values()] == [result]

                return it

            await eventually(says("decode answered 503"))
            faults.clear()
            await eventually(says("ok"))

    run(go())


def test_busy_and_absent_engines_are_not_the_pairs_fault():
    standing = PairStanding()
    health = Health(eject_after=1)
    standing.note(Finding(Verdict.UNKNOWN, "prefill answered 503"), health)
    assert not standing.apart
    assert standing.settled()
    standing.note(Finding(Verdict.BAD, "no KV moved"), health)
    assert standing.apart
    standing.note(Finding(Verdict.UNKNOWN, "failed: TimeoutError"), health)
    assert standing.apart


def test_one_bad_canary_is_asked_again_before_anything_is_done():
    standing, health = PairStanding(), Health(eject_after=3, readmit_after=2)
    bad = Finding(Verdict.BAD, "no KV moved")
    for _ in range(2):
        standing.note(bad, health)
        assert not standing.apart
        assert not standing.settled()
    standing.note(OK, health)
    assert standing.settled()
    for _ in range(3):
        standing.note(bad, health)
    assert standing.apart
    standing.note(OK, health)
    assert standing.apart
    assert not standing.settled()
    standing.note(OK, health)
    assert not standing.apart


def entries(*cohorts: str, role: str) -> list[ReplicaEntry]:
    return [
        ReplicaEntry(address=f"{role}/{i}", host="h", port=1, cohort=cohort)
        for i, cohort in enumerate(cohorts)
    ]


def test_every_replica_each_turn_and_every_pair_over_the_turns():
    prefills, decodes = entries("a", "a", "b", role="p"), entries("a", "a", "a", "b", "c", role="d")
    met = set()
    for turn in range(6):
        found = [(p.address, d.address) for p, d in pairs_in_turn(prefills, decodes, turn=turn)]
        assert {p for p, _ in found} == {"p/0", "p/1", "p/2"}
        assert {d for _, d in found} == {"d/0", "d/1", "d/2", "d/3"}
        met |= set(found)
    same = {(p.address, d.address) for p in prefills for d in decodes if p.cohort == d.cohort}
    assert met == same


DIALECTS = {
    "nixl-push": ("NixlPushConnector", {}),
    "mooncake": ("MooncakeConnector", {}),
    "moriio-write": ("MoRIIOConnector", {}),
    "moriio-read": ("MoRIIOConnector", {"read_mode": True}),
    "nixl": ("NixlConnector", {}),
}


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_every_dialect_has_its_canary(dialect):
    async def go():
        connector, extra = DIALECTS[dialect]
        engines, replicas = [], {}
        for role, kv_role in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
            shake, boot = free_port(), free_port()
            more = {**extra, "handshake_port": shake} if "IIO" in connector else extra
            double = Engines(
                *transfer(connector, kv_role, **more), env={"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(boot)}
            )
            await double.start()
            supply = double.engine.exchange.supply
            kv = {
                "host": "127.0.0.1", "side_channel_port": shake if "IIO" in connector else supply.port,
                "bootstrap_port": boot, "notify_port": shake, "engine_id": supply.engine_id,
            }  # fmt: skip
            engines.append(double)
            replicas[role] = {
                "address": f"m/{role}/0", "host": "127.0.0.1", "port": double.port, "cohort": "c", "kv": kv,
            }  # fmt: skip
        pools = [{"address": f"m/{role}", "role": role, "replicas": [one]} for role, one in replicas.items()]
        table = load_table(
            json.dumps(
                {
                    "service": "m",
                    "generation": 1,
                    "models": ["m"],
                    "dialect": dialect,
                    "max_model_len": 2048,
                    "pools": pools,
                }
            )
        )
        prefill, decode = (pool.replicas[0] for pool in table.pools)
        try:
            async with engine_session(table) as session:
                canary = Canary(session, table)
                assert await canary.over(prefill, decode) == OK
                engines[0].breaks(Kind.STATUS, When.ARRIVAL, "prefill")
                assert await canary.over(prefill, decode) == Finding(Verdict.BAD, "prefill answered 500")
        finally:
            for double in engines:
                await double.stop()

    run(go())
