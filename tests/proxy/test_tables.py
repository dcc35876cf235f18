"""Tables put in effect: all of one or nothing, slots that change hands, probes that outlive what engines send."""

import asyncio
import json
import time

import aiohttp
import pytest

from disaggc.proxy.board import Board, PerReplica, Total, replica_cell
from disaggc.proxy.probes import Probes
from disaggc.routing.table import load_table
from disaggc.routing.text import TableError
from tests.proxy.engine import Engine
from tests.proxy.harness import Stack, prompt, run
from tests.proxy.test_control import Proxy, eventually


def test_a_refused_table_is_not_half_in_effect(monkeypatch):
    monkeypatch.setenv("TEST_PROXY_NO_KEY", "")

    async def go():
        async with Stack(decodes=[Engine("d0"), Engine("d1")], table={"policy": "round-robin"}).up() as s:
            service = s.worker._service
            before = service.fleet, service.table, service.bounds
            changed = s.routing(2, api_key={"env": "TEST_PROXY_NO_KEY"}, max_model_len=99)
            changed["pools"][1]["replicas"].pop(0)
            assert "empty" in (await s.order(changed))["refused"]
            assert (service.fleet, service.table, service.bounds) == before
            assert service.gate.fleet is service.fleet
            assert s.total(Total.GENERATION) == 1
            for _ in range(4):
                assert (await s.ask(prompt())).status == 200
            assert all(engine.seen for engine in s.decodes)

    run(go())


def test_a_table_that_meets_a_bug_leaves_the_worker_able_to_listen():
    async def go():
        async with Stack().up() as s:
            assert "TableError" in (await s.order({**s.routing(2), "pools": [], "models": 5}))["refused"]
            assert await s.order(s.routing(3)) == {"generation": 3}
            assert (await s.ask(prompt())).status == 200

    run(go())


@pytest.mark.parametrize("name", ["generation", "max_model_len", "block_size"])
def test_numbers_that_no_cell_holds_are_no_table(name):
    table = Stack().routing()
    table["pools"][0]["replicas"][0]["port"] = table["pools"][1]["replicas"][0]["port"] = 1
    load_table(json.dumps(table))
    with pytest.raises(TableError, match=name):
        load_table(json.dumps({**table, name: 10**400}))


def test_a_replica_counts_from_nought_in_a_slot_that_another_had():
    async def go():
        old = Engine("d0", step_s=0.1, tokens=8)
        async with Stack(decodes=[old]).up() as s:
            running = asyncio.ensure_future(s.ask(prompt(max_tokens=8)))
            while not old.seen:
                await asyncio.sleep(0.01)
            table = s.routing(2)
            table["pools"][1]["replicas"][0]["address"] = "chat/decode/9"
            s._slots["chat/decode/9"] = slot = s._slots["chat/decode/0"]
            await s.order(table)
            cells = [replica_cell(slot, cell) for cell in range(PerReplica.SIZE)]
            assert [s.total(cell) for cell in cells] == [0.0] * PerReplica.SIZE
            assert (await running).status == 200
            await s.quiet()
            assert [s.total(cell) for cell in cells] == [0.0] * PerReplica.SIZE

    run(go())


def test_a_corrected_table_may_have_the_number_of_the_refused_one(tmp_path):
    async def go():
        stack, key = Stack(), tmp_path / "key"
        async with Proxy(stack, tmp_path, 2).up() as p:

            async def put():
                body = json.dumps(p.table(2, api_key={"file": str(key)}))
                async with p.session.put("/admin/routing", data=body) as answer:
                    return answer.status

            assert await put() == 503
            assert await p.status("/health") == 200
            assert (await stack.ask(prompt())).status == 200
            key.write_text("k")
            assert await put() == 200
            assert (await stack.ask(prompt())).status == 401
            assert (await stack.ask(prompt(), authorization="Bearer k")).status == 200

    run(go())


class _Odd(Engine):
    """Its metrics are not text."""

    async def _answer(self, path, body, writer):
        if path == "/metrics":
            return self._whole(writer, 200, b"vllm:num_requests_waiting 3\n# \xff\xfe\n", kind="text/plain")
        return await super()._answer(path, body, writer)


def test_probes_outlive_an_engine_whose_metrics_are_no_text(tmp_path):
    async def go():
        health = {"interval_s": 0.1, "timeout_s": 0.5, "eject_after": 2, "readmit_after": 2}
        stack = Stack(decodes=[_Odd("d0"), Engine("d1")], table={"health": health})
        async with Proxy(stack, tmp_path, 1).up() as p:

            async def healthy(count):
                return await p.metric("replica_healthy") == count

            await eventually(lambda: healthy(3))
            assert await p.metric("replica_engine_waiting") == 3
            await stack.decodes[1].stop()
            await eventually(lambda: healthy(2))
            await stack.decodes[1].start()
            await eventually(lambda: healthy(3))

    run(go())


class _Control:
    """What probes need of the control process."""

    def __init__(self, table):
        self.table, self.board = table, Board.create(1)
        self.slots = {r.address: i for i, r in enumerate(r for pool in table.pools for r in pool.replicas)}
        self.forgotten = []

    def forget(self, address):
        self.forgotten.append(address)


def test_an_engine_that_came_back_has_no_prefixes_any_more():
    async def go():
        stack = Stack()
        async with stack.up() as s, aiohttp.ClientSession() as session:
            control = _Control(
                load_table(json.dumps(s.routing(health={"eject_after": 2, "readmit_after": 2})))
            )
            probes, entry = Probes(control), control.table.pools[1].replicas[0]
            await probes._probe(session, entry)
            await s.decodes[0].stop()
            for _ in range(2):
                await probes._probe(session, entry)
            assert control.forgotten == []
            await s.decodes[0].start()
            for _ in range(3):
                await probes._probe(session, entry)
            assert control.forgotten == ["chat/decode/0"]

            memory = s.worker._service.prefixes
            for address in ("chat/decode/0", "chat/decode/1"):
                memory.note(address, (b"a", b"b"))
            s._writer.write(b'{"forget": "chat/decode/0"}\n')
            end = time.monotonic() + 5
            while len(memory) > 2 and time.monotonic() < end:
                await asyncio.sleep(0.01)
            assert memory.cached_bytes("chat/decode/0", (b"a", b"b")) == 0
            assert memory.cached_bytes("chat/decode/1", (b"a", b"b")) == 2048

    run(go())


def test_an_engine_that_left_the_table_and_came_again_is_judged_anew():
    async def go():
        table = load_table(json.dumps(_ported(Stack())))
        control = _Control(table)
        probes = Probes(control)
        watch = asyncio.ensure_future(probes.run())
        probes.standings["chat/decode/7"] = None
        async with asyncio.timeout(5):
            while "chat/decode/7" in probes.standings:
                await asyncio.sleep(0.01)
        watch.cancel()

    run(go())


def _ported(stack):
    for engine in (*stack.prefills, *stack.decodes):
        engine.port = 1
    return stack.routing()
