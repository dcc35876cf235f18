"""Requests whose only engine of a role is away: they wait for it, within bounds, and spend no tries on it."""

import asyncio
import errno
import sys
import time
from collections import deque

import pytest

from disaggc.proxy.board import PerClass, Total, class_cell
from disaggc.proxy.pool import connect_fault
from disaggc.proxy.service import clients_of
from tests.bench.fault_stack import session
from tests.proxy.engine import Engine
from tests.proxy.harness import FAST, Stack, prompt, read_reply, request, run


def _stack(**table):
    timeouts = {**FAST, "queue_s": 3.0, **table.pop("timeouts", {})}
    return Stack(table={"timeouts": timeouts, "health": {"eject_after": 2, "open_s": 0.2}, **table})


def _one(s, role):
    return (s.prefills if role == "prefill" else s.decodes)[0]


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("retries", [0, 2])
def test_an_engine_that_comes_back_in_time_serves_who_waited(role, retries):
    async def go():
        async with _stack(retries=retries).up() as s:
            engine = _one(s, role)
            await engine.stop()
            asking = [asyncio.ensure_future(s.ask(prompt(stream=i % 2 == 0))) for i in range(6)]
            await asyncio.sleep(0.8)
            assert not any(task.done() for task in asking)
            asked = len(s.prefills[0].seen)
            await engine.start()
            assert [reply.status for reply in await asyncio.gather(*asking)] == [200] * 6
            assert s.total(class_cell(0, PerClass.RETRIES)) == 0
            assert s.total(Total.WAITED_FOR_ENGINE) >= 6
            # knocking costs no prefill: each request had one before decode was found gone, and one after
            assert asked == (0 if role == "prefill" else 6)
            assert len(s.prefills[0].seen) == (6 if role == "prefill" else 12)
            await s.quiet()
            assert s.pinned == (0 if role == "prefill" else 6)  # a dead decode can release nothing: leases do

    run(go())


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("bound", [{"queue_s": 0.6}, {"total_s": 0.6}])
def test_an_engine_that_stays_away_is_said_when_patience_ends(role, bound):
    async def go():
        async with _stack(timeouts=bound).up() as s:
            await _one(s, role).stop()
            for _ in range(2):  # the second finds the circuit open
                begun = time.monotonic()
                reply = await s.ask(prompt())
                assert 0.5 < time.monotonic() - begun < 1.6
                assert reply.status == 503
                assert reply.headers["retry-after"] == "2"
            assert s.total(Total.REFUSED_NO_REPLICA) == 2
            await s.quiet()
            assert s.total(Total.TOKENS_OPEN) == 0
            await _one(s, role).start()

    run(go())


def test_where_the_policy_lets_decode_prefill_nobody_waits():
    async def go():
        async with _stack(on_prefill_failure="decode-locally").up() as s:
            await s.prefills[0].stop()
            for _ in range(5):
                begun = time.monotonic()
                assert (await s.ask(prompt())).status == 200
                assert time.monotonic() - begun < 0.5
            assert s.total(Total.WAITED_FOR_ENGINE) == 0
            assert s.total(class_cell(0, PerClass.FALLBACK)) == 5
            await s.prefills[0].start()

    run(go())


def test_under_policy_error_nobody_waits():
    async def go():
        async with _stack(on_prefill_failure="error").up() as s:
            await s.prefills[0].stop()
            begun = time.monotonic()
            assert [(await s.ask(prompt())).status for _ in range(3)] == [502, 502, 502]
            assert time.monotonic() - begun < 0.5
            await s.prefills[0].start()

    run(go())


RESTING = {"eject_after": 2, "open_s": 30.0}


@pytest.mark.parametrize("policy", ["error", "retry"])
@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_circuit_does_not_shut_out_the_only_engine_of_a_role(role, policy):
    async def go():
        async with _stack(retries=0, on_prefill_failure=policy, health=RESTING).up() as s:
            engine = _one(s, role)
            engine.script.extend([500, 500])
            assert [(await s.ask(prompt())).status for _ in range(2)] == [502, 502]
            assert (await s.say(request(b"", "/ready", "GET"))).status == 503, "the circuit is open"
            if role == "prefill":
                engine.prefill_s = 0.2
            begun = time.monotonic()
            asking = [s.ask(prompt()) for _ in range(6)]
            assert [reply.status for reply in await asyncio.gather(*asking)] == [200] * 6
            assert time.monotonic() - begun < 2.0
            assert (await s.say(request(b"", "/ready", "GET"))).status == 200

    run(go())


def test_one_request_at_a_time_tries_the_only_engine_while_it_fails():
    async def go():
        async with _stack(retries=0, on_prefill_failure="error", health=RESTING).up() as s:
            s.prefills[0].script.extend(["hang"] * 3)
            for _ in range(2):
                assert (await s.ask(prompt())).status == 504
            asking = [asyncio.ensure_future(s.ask(prompt())) for _ in range(5)]
            await asyncio.sleep(0.3)
            assert len(s.prefills[0].seen) == 3
            assert sorted([reply.status for reply in await asyncio.gather(*asking)]) == [200] * 4 + [504]

    run(go())


def test_an_open_circuit_still_sends_requests_to_the_sound_engine():
    async def go():
        stack = _stack(health=RESTING)
        stack.prefills.append(Engine("p1"))
        async with stack.up() as s:
            s.prefills[0].script.extend([500, 500, 500])
            for _ in range(20):
                assert (await s.ask(prompt())).status == 200
            assert len(s.prefills[0].seen) == 2

    run(go())


def test_calls_for_any_engine_go_to_a_sound_one():
    async def go():
        async with _stack(retries=0, on_prefill_failure="error", health=RESTING).up() as s:
            s.prefills[0].script.extend([500, 500])
            for _ in range(2):
                assert (await s.ask(prompt())).status == 502
            asked = len(s.prefills[0].seen)
            for _ in range(12):
                assert (await s.say(request(b"", "/v1/models", "GET"))).status == 200
            assert len(s.prefills[0].seen) == asked

    run(go())


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_tries_on_the_same_engine_have_a_growing_pause_between_them(role):
    async def go():
        async with _stack(retries=2).up() as s:
            _one(s, role).script.extend([500, 500])
            begun = time.monotonic()
            assert (await s.ask(prompt())).status == 200
            assert time.monotonic() - begun >= 0.3  # 0.1 and 0.2 s
            assert s.total(class_cell(0, PerClass.RETRIES)) == 2
            await s.quiet()
            assert s.pinned == 0

    run(go())


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_engines_that_are_stopped_together_lose_no_request(role):
    """They answer errors for a moment, then refuse connections, and come back."""

    async def go():
        engines = [Engine(f"{role}{i}", script=deque([500] * 9)) for i in range(4)]
        stack = _stack(retries=2, health={"eject_after": 9})
        setattr(stack, f"{role}s", engines)
        async with stack.up() as s:
            asking = [asyncio.ensure_future(s.ask(prompt())) for _ in range(4)]
            await asyncio.sleep(0.1)
            for engine in engines:
                await engine.stop()
                engine.script.clear()
            await asyncio.sleep(0.5)
            for engine in engines:
                await engine.start()
            assert [reply.status for reply in await asyncio.gather(*asking)] == [200] * 4

    run(go())


def test_no_pause_outlives_the_request():
    async def go():
        async with _stack(retries=9, timeouts={"total_s": 1.0}).up() as s:
            s.prefills[0].script.extend([500] * 9)
            begun = time.monotonic()
            reply = await s.ask(prompt())
            assert (reply.status, reply.json["error"]["message"]) == (502, "prefill failed: status")
            assert time.monotonic() - begun < 1.0
            assert 2 <= len(s.prefills[0].seen) <= 4  # 0.1, 0.2 and 0.4 s fit, another 0.8 s does not

    run(go())


def test_a_client_that_leaves_in_a_pause_leaves_nothing():
    async def go():
        async with _stack(retries=2).up() as s:
            s.prefills[0].script.extend([500] * 3)
            _, writer = await s.connect()
            writer.write(request(prompt()))
            while not s.prefills[0].seen:
                await asyncio.sleep(0.005)
            writer.close()
            await asyncio.sleep(0.5)
            await s.quiet()
            assert s.total(Total.TOKENS_OPEN) == 0
            assert len(s.prefills[0].seen) == 1

    run(go())


def test_decode_is_not_asked_for_kv_whose_time_is_over(monkeypatch):
    """A proxy that stands still between the legs: its connection is open, and the lease is over."""
    limits = []
    timeout = asyncio.timeout

    def still(seconds):
        limits.append(seconds)
        if len(limits) == 2:  # decode's connection, the first time
            time.sleep(0.4)  # the whole process stands still
        return timeout(seconds)

    async def go():
        async with _stack(timeouts={"handoff_s": 0.3, "queue_s": 3.0}).up() as s:
            monkeypatch.setattr(asyncio, "timeout", still)
            assert (await s.ask(prompt())).status == 200
            monkeypatch.undo()
            assert limits[1] <= 0.3 + 1e-6  # a difference of times of the monotonic clock
            assert (len(s.prefills[0].seen), len(s.decodes[0].seen)) == (2, 1 + _releases(s.decodes[0]))
            await s.quiet()
            assert s.pinned == 0

    run(go())


def _releases(engine):
    return sum(one["body"].get("model") == "disaggc-release" for one in engine.seen)


def test_another_engine_is_asked_at_once():
    async def go():
        stack = _stack()
        stack.prefills.append(Engine("p1"))
        async with stack.up() as s:
            await s.prefills[0].stop()
            begun = time.monotonic()
            for _ in range(4):
                assert (await s.ask(prompt())).status == 200
            assert time.monotonic() - begun < 0.5
            assert s.total(Total.WAITED_FOR_ENGINE) == 0
            await s.prefills[0].start()

    run(go())


def test_a_client_that_leaves_while_it_waits_leaves_nothing():
    async def go():
        async with _stack().up() as s:
            await s.prefills[0].stop()
            _, writer = await s.connect()
            writer.write(request(prompt()))
            while not s.total(Total.WAITED_FOR_ENGINE):
                await asyncio.sleep(0.01)
            writer.close()
            await s.quiet()
            assert s.total(Total.TOKENS_OPEN) == 0
            await s.prefills[0].start()
            await asyncio.sleep(0.3)
            assert s.prefills[0].seen == []
            assert (await s.ask(prompt())).status == 200

    run(go())


def test_what_left_the_table_is_not_waited_for():
    async def go():
        async with _stack().up() as s:
            table = s.routing(2)
            table["pools"][1]["replicas"][0]["state"] = "draining"
            await s.order(table)
            begun = time.monotonic()
            assert (await s.ask(prompt())).status == 503
            assert time.monotonic() - begun < 0.5

    run(go())


def test_what_is_in_flight_adds_up_to_nought():
    async def go():
        async with Stack().up() as s:
            for size in range(30, 60):
                await s.ask(prompt(prompt="ab c" * size + "d" * (size % 7)))
            await s.quiet()
            assert s.total(Total.TOKENS_OPEN) == 0.0

    run(go())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL])
def test_our_own_shortage_is_not_the_engines_fault(number):
    fault = connect_fault(OSError(number, "x"))
    assert (fault.status, fault.blame, fault.sent) == (503, False, False)
    assert connect_fault(OSError(errno.ECONNREFUSED, "x")).blame


def test_our_own_shortage_opens_no_circuit():
    async def go():
        async with _stack(timeouts={"queue_s": 0.4}).up() as s:
            asyncio.get_running_loop().short = OSError(errno.EMFILE, "Too many open files")
            for _ in range(4):
                reply = await s.ask(prompt())
                assert (reply.status, reply.headers["retry-after"]) == (503, "2")
            reply = await s.say(request(b"", "/v1/models", "GET"))
            assert (reply.status, reply.headers["retry-after"]) == (503, "2")
            asyncio.get_running_loop().short = None
            replicas = s.worker._service.fleet.replicas.values()
            assert [replica.circuit.failures for replica in replicas] == [0, 0]
            assert (await s.ask(prompt())).status == 200

    run(go())


def test_open_files_bound_the_clients_of_a_worker(monkeypatch):
    assert [clients_of(n) for n in (-1, 64, 1024, 20_000)] == [sys.maxsize, 10, 330, 6656]
    monkeypatch.setattr("resource.getrlimit", lambda _: (38, 38))

    async def go():
        async with Stack().up() as s:
            held = [await s.connect() for _ in range(2)]
            await asyncio.sleep(0.05)
            reader, writer = await s.connect()
            assert (await read_reply(reader)).status == 503
            for _, w in (*held, (reader, writer)):
                w.close()

    run(go())


def test_when_all_were_tried_the_one_that_did_not_fail_is_tried_again():
    async def go():
        stack = _stack(policy="prefix-affinity", health={"eject_after": 5, "open_s": 5.0})
        stack.prefills = [Engine("p0", script=deque(["hang"] * 3)), Engine("p1")]
        stack.decodes = [Engine("d0", script=deque([500])), Engine("d1", script=deque([500]))]
        async with stack.up() as s:
            s.decodes[1].script.clear()
            reply = await s.ask(prompt(), x_session_id=session(0))
            assert reply.status == 200
            assert [len(engine.seen) for engine in s.prefills] == [1, 2]

    run(go())
