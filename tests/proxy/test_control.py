"""The whole proxy as processes: `disaggc proxy`, its workers, its administration."""

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

from disaggc.proxy.compiled import is_compiled
from disaggc.proxy.launch import read_table
from disaggc.proxy.tables import RoutingFile
from disaggc.routing.table import ReplicaState
from tests.compiled import runs_compiled
from tests.ports import free_port
from tests.proxy.engine import Engine
from tests.proxy.harness import Reply, Stack, prompt, request, run


def _children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


class Proxy:
    """A running proxy with engines in this process."""

    def __init__(self, stack, tmp_path, workers):
        self.stack, self.path, self.workers = stack, tmp_path / "routing.json", workers
        self.port, self.admin = free_port(), free_port()

    def table(self, generation=1, **changes):
        listen = {"host": "127.0.0.1", "port": self.port, "admin_port": self.admin}
        return self.stack.routing(generation, listen=listen, **changes)

    def write(self, table):
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps(table))
        beside.replace(self.path)

    @contextlib.asynccontextmanager
    async def up(self):
        for engine in (*self.stack.prefills, *self.stack.decodes):
            await engine.start()
        self.stack.port = self.port
        self.write(self.table())
        program = ["-c", "from disaggc.cli.entry import run; run()", "proxy", "--config", str(self.path)]
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, *program, "--workers", str(self.workers), stderr=asyncio.subprocess.PIPE
        )
        self.said = []
        reading = asyncio.ensure_future(self._read())
        self.session = aiohttp.ClientSession(f"http://127.0.0.1:{self.admin}")
        try:
            async with asyncio.timeout(20):
                while (await self.status("/health")) != 200:
                    await asyncio.sleep(0.05)
            yield self
        finally:
            await self.session.close()
            if self.process.returncode is None:
                self.process.send_signal(signal.SIGTERM)
                await asyncio.wait_for(self.process.wait(), 10)
            reading.cancel()
            for engine in (*self.stack.prefills, *self.stack.decodes):
                await engine.stop()

    async def _read(self):
        while line := await self.process.stderr.readline():
            self.said.append(line.decode())

    async def status(self, path):
        try:
            async with self.session.get(path) as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def metric(self, name):
        async with self.session.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == f"disaggc_proxy_{name}"
        )

    async def children(self):
        return _children(self.process.pid)


async def eventually(check, seconds=30):
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.05)


def test_its_workers_run_the_same_package(tmp_path):
    async def go():
        async with Proxy(Stack(), tmp_path, 2).up() as p:
            workers = await p.children()
            assert len(workers) == 2
            assert {runs_compiled(worker) for worker in workers} == {is_compiled()}

    run(go())


@pytest.mark.parametrize("workers", [1, 2])
def test_serves_counts_and_drains(tmp_path, workers):
    async def go():
        stack = Stack(decodes=[Engine("d0", step_s=0.02, tokens=4)])
        async with Proxy(stack, tmp_path, workers).up() as p:
            replies = await asyncio.gather(*(stack.ask(prompt(stream=i % 2 == 0)) for i in range(30)))
            assert {r.status for r in replies} == {200}
            assert await p.metric("requests_total") == 30
            assert await p.metric("requests_in_flight") == 0
            assert await p.metric("output_tokens_total") == 120
            assert await p.metric("tokens_in_flight") == pytest.approx(0)
            await asyncio.sleep(0.3)  # lengths and times reach the board with the next sweep
            async with p.session.get("/admin/lengths") as answer:
                told = await answer.json()
            lengths, borders = told["classes"]["default"], told["borders"]
            assert sum(lengths["input"]["counts"]) == 30
            assert len(borders) == len(lengths["output"]["counts"]) - 1
            (here,) = (i for i, count in enumerate(lengths["output"]["counts"]) if count)
            assert borders[here - 1] <= 4 < borders[here]
            assert (borders[0], borders[-1]) == (1, 2**21)
            assert lengths["output"]["total"] == 120
            reader, writer = await stack.connect()
            stack.decodes[0].tokens, stack.decodes[0].step_s = 20, 0.05
            writer.write(request(prompt(stream=True, max_tokens=20)))
            await reader.readuntil(b"t1 ")
            p.process.send_signal(signal.SIGTERM)
            await reader.readuntil(b"t19 ")
            await reader.readuntil(b"0\r\n\r\n")
            assert await asyncio.wait_for(p.process.wait(), 10) == 0
            writer.close()

    run(go())


def test_live_tables_by_file_and_by_put(tmp_path):
    async def go():
        stack = Stack(decodes=[Engine("d0"), Engine("d1")])
        async with Proxy(stack, tmp_path, 2).up() as p:
            table = p.table(2)
            before, live = p.path.read_text(), p.path.with_name("routing.json.live")
            table["pools"][1]["replicas"][0]["state"] = "draining"
            async with p.session.put("/admin/routing", json=table) as answer:
                assert (answer.status, await answer.json()) == (200, {"generation": 2, "kept": True})
            for _ in range(6):
                await stack.ask(prompt())
            assert stack.decodes[0].seen == []
            assert p.path.read_text() == before, "the operator's file is the operator's"
            put = json.loads(live.read_text())
            assert (put["made_from"]["generation"], put["table"]["generation"]) == (1, 2)
            async with p.session.put("/admin/routing", json=p.table(1)) as answer:
                assert answer.status == 409
            async with p.session.put("/admin/routing", data=b"{") as answer:
                assert answer.status == 400
            async with p.session.put("/admin/routing", json={**table, "models": []}) as answer:
                assert (await answer.json())["error"] == "`models`: 0 entries, at least 1 wanted"
            async with p.session.put(
                "/admin/routing", json={**table, "generation": 9, "service": "other"}
            ) as answer:
                assert answer.status == 409
            assert await p.metric("routing_refused_total") == 4
            assert await p.metric("routing_file_rejected") == 0
            p.path.write_text("{ half a fi")

            async def rejected():
                return await p.metric("routing_file_rejected") == 1

            await eventually(rejected)
            async with p.session.get("/health") as answer:
                assert answer.status == 200
                assert "not JSON" in (await answer.json())["routing_file_rejected"]
            assert (await stack.ask(prompt())).status == 200
            async with p.session.post("/admin/undrain", params={"replica": "chat/decode/0"}) as answer:
                assert (await answer.json())["generation"] == 3
            p.write(p.table(4))

            async def in_effect():
                wanted = {"routing_generation": 4, "routing_file_rejected": 0}
                return {name: await p.metric(name) for name in wanted} == wanted

            await eventually(in_effect)
            assert not live.exists(), "the operator's newer file stands"
            for _ in range(6):
                await stack.ask(prompt())
            assert stack.decodes[0].seen

    run(go())


def started(p):
    """What a proxy of this file would start with."""
    return read_table(RoutingFile(p.path), host=None, port=None)


async def drained(p, address="chat/decode/1"):
    async with p.session.post("/admin/drain", params={"replica": address}) as answer:
        return await answer.json()


def draining_in(table):
    return {r.address for pool in table.pools for r in pool.replicas if r.state is ReplicaState.DRAINING}


def test_a_drain_outlives_a_restart_and_another_file(tmp_path):
    async def go():
        stack = Stack(decodes=[Engine("d0"), Engine("d1")])
        async with Proxy(stack, tmp_path, 1).up() as p:
            assert (await drained(p))["generation"] == 2
            async with p.session.get("/admin/pools") as answer:
                states = {r["address"]: r["state"] for r in (await answer.json())["replicas"]}
            assert states["chat/decode/1"] == "draining"
            async with p.session.post("/admin/drain", params={"replica": "nobody"}) as answer:
                assert answer.status == 404
            async with p.session.post("/admin/drain", params={"address": "chat/decode/1"}) as answer:
                assert answer.status == 400
                assert "`?replica=ADDRESS`; there are chat/decode/0, " in (await answer.json())["error"]
        assert started(p).generation == 2, "a drain outlives a restart"
        assert started(p).listen.admin_port == p.admin
        p.path.write_text(json.dumps(p.table(), indent=4))
        assert started(p).generation == 2, "another spelling of the same table is the same file"
        live = p.path.with_name("routing.json.live")
        p.write(p.table(1, policy="round-robin"))
        for _ in range(2):
            found = started(p)
            assert (found.generation, found.policy) == (1, "round-robin"), "the file was replaced meanwhile"
            assert draining_in(found) == {"chat/decode/1"}
        assert json.loads(live.read_text())["table"]["policy"] == "round-robin"
        moved = p.table(2)
        moved["pools"][1]["replicas"][1]["port"] += 1
        p.write(moved)
        assert draining_in(started(p)) == set(), "another engine has its address"
        assert not live.exists(), "the drain does not come back with the file that it was made from"

    run(go())


def test_a_new_file_replaces_what_administration_made_of_the_one_before(tmp_path):
    """Who writes files cannot know how far administration has counted on."""

    async def go():
        stack = Stack(decodes=[Engine("d0"), Engine("d1")])
        async with Proxy(stack, tmp_path, 2).up() as p:
            for said in (2, 3, 4):
                assert (await drained(p, f"chat/decode/{said % 2}"))["generation"] == said

            async def health():
                async with p.session.get("/health") as answer:
                    return await answer.json()

            p.path.write_text(json.dumps(p.table(), indent=4))
            sha = hashlib.sha256(p.path.read_bytes()).hexdigest()

            async def judged():
                return (await health())["routing_file_sha256"] == sha

            await eventually(judged)
            said = await health()
            assert (said["generation"], said["routing_file_rejected"]) == (4, None), (
                "the same table is no news"
            )
            p.write(p.table(1, policy="round-robin"))

            async def rejected():
                return (await health())["routing_file_rejected"]

            await eventually(rejected)
            assert "generation 1 is not above 1" in await rejected()
            p.write(p.table(2, policy="round-robin"))

            async def in_effect():
                said = await health()
                return (said["generation"], said["routing_file_generation"], said["workers"]) == (2, 2, 2)

            await eventually(in_effect)
            assert await rejected() is None
            async with p.session.get("/admin/routing") as answer:
                table = await answer.json()
            assert table["policy"] == "round-robin"
            states = {r["address"]: r["state"] for pool in table["pools"] for r in pool["replicas"]}
            assert states == {
                "chat/prefill/0": "active", "chat/decode/0": "draining", "chat/decode/1": "draining",
            }  # fmt: skip
            assert await p.metric("routing_generation") == 2
            for number, generation in ((0, 3), (1, 4)):
                async with p.session.post(
                    "/admin/undrain", params={"replica": f"chat/decode/{number}"}
                ) as answer:
                    assert (await answer.json())["generation"] == generation
            p.write(p.table(5))

            async def taken():
                return (await health())["generation"] == 5

            await eventually(taken)
            assert draining_in(started(p)) == set(), "what was taken back is not drained by an older table"

    run(go())


def test_sighup_tries_a_rejected_file_again(tmp_path):
    async def go():
        stack, key = Stack(), tmp_path / "key"
        async with Proxy(stack, tmp_path, 2).up() as p:
            p.write(p.table(2, api_key={"file": str(key)}))

            async def rejected():
                return await p.metric("routing_file_rejected") == 1

            await eventually(rejected)
            key.write_text("k")
            p.process.send_signal(signal.SIGHUP)

            async def in_effect():
                return await p.metric("routing_generation") == 2 and not await rejected()

            await eventually(in_effect)
            assert (await stack.ask(prompt())).status == 401

    run(go())


def test_a_table_that_cannot_be_written_down_is_in_effect_all_the_same(tmp_path):
    async def go():
        stack = Stack()
        folder = tmp_path / "mounted"
        folder.mkdir()
        async with Proxy(stack, folder, 1).up() as p:
            folder.rename(tmp_path / "gone")
            async with p.session.put("/admin/routing", json=p.table(2)) as answer:
                assert (answer.status, await answer.json()) == (200, {"generation": 2, "kept": False})
            assert await p.metric("routing_generation") == 2
            assert (await stack.ask(prompt())).status == 200

    run(go())


def test_a_worker_that_dies_is_replaced(tmp_path):
    async def go():
        stack = Stack()
        async with Proxy(stack, tmp_path, 1).up() as p:
            assert (await stack.ask(prompt())).status == 200
            (worker,) = await p.children()
            os.kill(worker, signal.SIGKILL)
            reply: Reply = await stack.ask(prompt())
            assert reply.status == 200, "its socket outlives it, so the client only waits"
            assert await p.children() != [worker]

    run(go())


def test_control_killed_lets_workers_finish_and_go(tmp_path):
    async def go():
        stack = Stack(decodes=[Engine("d0", step_s=0.05, tokens=10)])
        async with Proxy(stack, tmp_path, 1).up() as p:
            (worker,) = await p.children()
            reader, writer = await stack.connect()
            writer.write(request(prompt(stream=True, max_tokens=10)))
            await reader.readuntil(b"t1 ")
            p.process.kill()
            reply = await reader.readuntil(b"0\r\n\r\n")
            assert b"t9 " in reply
            writer.close()

            async def gone():
                return not _alive(worker)

            await eventually(gone)

    run(go())


def test_probes_eject_and_readmit(tmp_path):
    async def go():
        stack = Stack(
            table={
                "health": {
                    "interval_s": 0.1,
                    "timeout_s": 0.5,
                    "eject_after": 2,
                    "readmit_after": 2,
                    "canary_s": 0.2,
                }
            }
        )
        async with Proxy(stack, tmp_path, 1).up() as p:

            async def canary_ok():
                async with p.session.get("/admin/canaries") as answer:
                    pairs = (await answer.json())["pairs"]
                return [c["result"] for c in pairs] == ["ok"]

            await eventually(canary_ok)
            await stack.decodes[0].stop()

            async def out():
                return await p.metric("replica_healthy") == 1

            await eventually(out)
            assert (await stack.ask(prompt())).status == 503
            await stack.decodes[0].start()

            async def back():
                return await p.metric("replica_healthy") == 2

            await eventually(back)

            async def serves():
                return (await stack.ask(prompt())).status == 200

            await eventually(serves)

    run(go())


@pytest.mark.parametrize(("decodes", "kept"), [(1, True), (2, False)])
def test_the_last_of_its_role_serves_on_while_it_is_only_slow(tmp_path, decodes, kept):
    async def go():
        health = {"interval_s": 0.05, "timeout_s": 0.5, "eject_after": 2, "readmit_after": 1}
        stack = Stack(decodes=[Engine(f"d{i}") for i in range(decodes)], table={"health": health})
        async with Proxy(stack, tmp_path, 1).up() as p:
            slow = stack.decodes[-1]
            slow.health_s = 2.5
            await asyncio.sleep(2.5)
            assert await p.metric("replica_healthy") == 1 + decodes - (not kept)
            for _ in range(4):
                assert (await stack.ask(prompt())).status == 200
            assert (len(slow.seen) > 0) is kept
            await slow.stop()

            async def out():
                return await p.metric("replica_healthy") == decodes

            await eventually(out)
            await slow.start()

    run(go())


def test_a_port_in_use_and_a_bad_file_are_said(tmp_path):
    async def go():
        stack = Stack()
        async with Proxy(stack, tmp_path, 1).up() as p:
            for text, words in ((p.path.read_text(), "cannot start"), ("{}", "models"), ("nope", "not JSON")):
                other = tmp_path / "other.json"
                other.write_text(text)
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", "from disaggc.cli.entry import run; run()", "proxy", "--config", str(other),
                    stderr=asyncio.subprocess.PIPE,
                )  # fmt: skip
                _, said = await asyncio.wait_for(process.communicate(), 15)
                assert process.returncode == 1
                assert words in said.decode()
                assert "Traceback" not in said.decode()

    run(go())


def test_metrics_have_an_address_of_their_own_that_tells_nothing_else(tmp_path):
    async def go():
        stack = Stack()
        proxy = Proxy(stack, tmp_path, 1)
        metrics, plain = free_port(), proxy.table
        own = {"metrics_host": "127.0.0.2", "metrics_port": metrics}
        proxy.table = lambda *a, **k: (t := plain(*a, **k)) | {"listen": {**t["listen"], **own}}
        async with proxy.up() as p:
            url = f"http://127.0.0.2:{metrics}"
            async with p.session.get(f"{url}/metrics") as answer:
                assert answer.status == 200
                assert "disaggc_proxy_requests_in_flight" in await answer.text()
            for path in ("/admin/pools", "/admin/routing", "/admin/lengths", "/health"):
                async with p.session.get(f"{url}{path}") as answer:
                    assert answer.status == 404
            async with p.session.put(f"{url}/admin/routing", json=p.table(2)) as answer:
                assert answer.status == 404
            assert await p.status("/admin/pools") == 200

    run(go())


def test_administration_refuses_browsers_and_wrong_tokens(tmp_path):
    async def go():
        os.environ["TEST_ADMIN_TOKEN"] = "secret"  # noqa: S105 - a test's own
        stack = Stack()
        proxy = Proxy(stack, tmp_path, 1)
        plain = proxy.table
        proxy.table = lambda *a, **k: (
            (t := plain(*a, **k)) | {"listen": {**t["listen"], "admin_token": {"env": "TEST_ADMIN_TOKEN"}}}
        )
        async with proxy.up() as p:
            assert await p.status("/admin/pools") == 401
            async with p.session.get("/admin/pools", headers={"Authorization": "Bearer secret"}) as answer:
                assert answer.status == 200
            async with p.session.get(
                "/admin/pools", headers={"Authorization": "Bearer secret", "Origin": "http://x"}
            ) as answer:
                assert answer.status == 403

    run(go())
