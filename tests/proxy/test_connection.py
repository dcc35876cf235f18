"""A client's connection: what it may hold, how long it may take, and that every answer owed on it is given."""

import asyncio
import json
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest

from disaggc.proxy import worker
from disaggc.proxy.board import PerClass, PerReplica, class_cell, replica_cell
from disaggc.proxy.bounds import HELD_BYTES
from tests.proxy.engine import Engine
from tests.proxy.harness import FAST, Stack, prompt, read_reply, request, run

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: t\r\n"
CHUNKED = b"POST /health HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n"


def resident_mib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024


async def send_until_answered(s, start, piece, *, most):
    """Send pieces until the proxy says something; the answer and how many bytes it took."""
    reader, writer = await s.connect()
    answer = asyncio.ensure_future(read_reply(reader))
    writer.write(start)
    sent = len(start)
    try:
        while not answer.done() and sent < most:
            writer.write(piece)
            sent += len(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return await asyncio.wait_for(answer, 3), sent
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (CHUNKED + b"0\r\n", b"".join(b"x%d: \r\n" % i for i in range(3000))),
        (CHUNKED + b"0\r\n", b"x: " + b"a" * 30_000 + b"\r\n"),
        (CHUNKED + b"0\r\nx: ", b"a" * 30_000),
        (CHUNKED + b"1;x=", b"a" * 30_000),
        (CHUNKED + b"2\r\n{}\r\n0\r\n", b"x: y\r\n" * 6000),
    ],
)
def test_what_surrounds_a_body_is_limited_like_a_head(start, piece):
    async def go():
        async with Stack().up() as s:
            reply, _ = await send_until_answered(s, start, piece, most=64 << 20)
            assert reply.status == 431
            await s.quiet()

    run(go())


def test_trailers_within_the_limit_are_taken_and_mean_nothing():
    async def go():
        async with Stack().up() as s:
            raw = json.dumps(prompt()).encode()
            body = b"%x;a=b\r\n%b\r\n0\r\nAuthorization: Bearer x\r\nX-Request-Id: evil\r\n\r\n" % (
                len(raw),
                raw,
            )
            reply = await s.say(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body)
            assert reply.status == 200
            assert reply.headers["x-request-id"] != "evil"

    run(go())


def test_a_body_in_tiny_chunks_takes_no_more_than_its_size():
    async def go():
        async with Stack(
            table={"limits": {"body_bytes": 8 << 20}, "timeouts": {**FAST, "client_read_s": 30}}
        ).up() as s:
            before = resident_mib()
            _, writer = await s.connect()
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(50):
                writer.write(b"2\r\nab\r\n" * 60_000)
                await writer.drain()
            async with asyncio.timeout(10):
                while s.worker._service.bodies.held < 6_000_000:
                    await asyncio.sleep(0.02)
            assert resident_mib() - before < 64, "6 MB of body took ten times that"
            writer.close()
            await asyncio.sleep(0.2)
            assert s.worker._service.bodies.held == 0

    run(go())


def test_bodies_on_their_way_are_limited_together_and_the_oldest_give_way():
    async def go():
        table = {"limits": {"body_bytes": 2 << 20}, "timeouts": {**FAST, "client_read_s": 30}}
        async with Stack(table=table).up() as s:
            service, held = s.worker._service, []
            assert service.bounds.held_bytes == HELD_BYTES
            service.bounds = replace(service.bounds, held_bytes=4 << 20)
            for _ in range(6):
                reader, writer = await s.connect()
                writer.write(HEAD + b"Content-Length: 1100000\r\n\r\n" + b" " * 1_000_000)
                await asyncio.sleep(0.1)
                held.append((reader, writer))
            for reader, _ in held[:2]:
                reply = await asyncio.wait_for(read_reply(reader), 2)
                assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert s.worker._service.bodies.held <= 4 << 20
            for reader, writer in held[2:]:
                writer.write(b" " * 100_000)
                assert (await asyncio.wait_for(read_reply(reader), 2)).status == 400  # blanks are no JSON
            assert s.worker._service.bodies.held == 0
            assert (await s.ask(prompt())).status == 200
            for _, writer in held:
                writer.close()

    run(go())


def test_a_body_ahead_of_an_answer_is_not_read_before_its_turn():
    async def go():
        async with Stack(decodes=[Engine("d0", step_s=0.1, tokens=8)]).up() as s:
            raw = json.dumps(prompt(padding="x" * (6 << 20))).encode()
            reader, writer = await s.connect()
            writer.write(request(prompt(stream=True, max_tokens=8)))
            await reader.readuntil(b"t0 ")
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(raw) + raw)
            await asyncio.sleep(0.3)
            assert 0 < s.worker._service.bodies.held < 1 << 20
            assert b"[DONE]" in await reader.readuntil(b"0\r\n\r\n")
            assert (await asyncio.wait_for(read_reply(reader), 5)).status == 200
            assert s.worker._service.bodies.held == 0
            writer.close()

    run(go())


@pytest.mark.parametrize(
    "start", [HEAD + b"Content-Length: 1000\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n"]
)
def test_a_body_that_dribbles_is_ended_though_it_never_pauses(start):
    async def go():
        async with Stack(table={"timeouts": {**FAST, "client_read_s": 0.4}}).up() as s:
            reader, writer = await s.connect()
            answer = asyncio.ensure_future(read_reply(reader))
            writer.write(start)
            began = time.monotonic()
            while not answer.done() and time.monotonic() - began < 5:
                writer.write(b" ")
                await asyncio.sleep(0.05)
            assert answer.done(), "the body dribbles on"
            assert answer.result().status == 408
            writer.close()

    run(go())


def test_a_slow_but_honest_body_is_served():
    async def go():
        async with Stack(table={"timeouts": {**FAST, "client_read_s": 0.5}}).up() as s:
            raw = json.dumps(prompt(padding="x" * 90_000)).encode()
            reader, writer = await s.connect()
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(raw))
            for at in range(0, len(raw), 6000):  # 40 kB/s: 2.3 s in all
                writer.write(raw[at : at + 6000])
                await asyncio.sleep(0.15)
            assert (await read_reply(reader)).status == 200
            writer.close()

    run(go())


# --- answers to clients that take them slowly ---


async def slow_client(s, raw, *, piece, pause_s, stop_after=None):
    """All that a client gets which reads a piece at a time."""
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.setblocking(False)
        await loop.sock_connect(sock, ("127.0.0.1", s.port))
        await loop.sock_sendall(sock, raw)
        got = bytearray()
        while data := await asyncio.wait_for(loop.sock_recv(sock, piece), 5):
            got += data
            head, found, body = got.partition(b"\r\n\r\n")
            if found and len(body) == int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
                break
            if stop_after is not None and len(got) > stop_after:
                await asyncio.sleep(2.5)
                stop_after = None
            await asyncio.sleep(pause_s)
        return bytes(got)


class Big(Engine):
    """Answers 16 MB."""

    async def _decode(self, body, writer, fault):
        del body, fault
        text = "x" * (16 << 20)
        return self._json(writer, 200, {"choices": [{"index": 0, "text": text, "finish_reason": "length"}]})


def outcome(s, cell):
    return s.total(class_cell(0, cell))


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
def test_a_whole_answer_is_not_cut_while_its_client_takes_it(connection):
    async def go():
        table = {"timeouts": {**FAST, "client_write_s": 1.0, "idle_client_s": 0.5, "gap_s": 30}}
        async with Stack(decodes=[Big("d0")], table=table).up() as s:
            raw = request(prompt(), connection=connection)
            got = await slow_client(s, raw, piece=65536, pause_s=0.015)
            assert len(got) > 16 << 20
            assert got.endswith(b"}")
            await asyncio.sleep(0.1)
            assert (outcome(s, PerClass.OK), outcome(s, PerClass.CLIENT_GONE)) == (1, 0)

    run(go())


def test_a_whole_answer_that_its_client_does_not_take_is_cut_and_is_no_success():
    async def go():
        table = {"timeouts": {**FAST, "client_write_s": 0.6, "gap_s": 30}}
        async with Stack(decodes=[Big("d0")], table=table).up() as s:
            got = await slow_client(s, request(prompt()), piece=65536, pause_s=0, stop_after=1 << 20)
            assert len(got) < 16 << 20
            assert (outcome(s, PerClass.OK), outcome(s, PerClass.CLIENT_GONE)) == (0, 1)
            await s.quiet()

    run(go())


# --- the end of draining ---


def test_when_the_drain_time_is_over_every_client_is_told(monkeypatch):
    monkeypatch.setattr(worker, "GOODBYE_S", 1.0)

    async def go():
        engine = Engine("d0", step_s=0.05, tokens=1000)
        table = {"timeouts": {**FAST, "drain_s": 0.4, "total_s": 50, "gap_s": 5, "client_read_s": 30}}
        async with Stack(decodes=[engine], table=table).up() as s:
            opened = [await s.connect() for _ in range(3)]
            opened[0][1].write(request(prompt(stream=True, max_tokens=500)))
            opened[1][1].write(request(prompt(max_tokens=500)))
            opened[2][1].write(HEAD + b"Content-Length: 50\r\n\r\n{")
            await opened[0][0].readuntil(b"t1 ")
            s._writer.write(b'{"drain":true}\n')
            said = await asyncio.wait_for(opened[0][0].read(), 5)
            assert said.endswith(b"\r\n0\r\n\r\n")
            event = json.loads(said.split(b"data: ")[-1].split(b"\n\n")[0])
            assert event["error"]["code"] == 503
            assert "shutting down" in event["error"]["message"]
            for reader, _ in opened[1:]:
                reply = await asyncio.wait_for(read_reply(reader), 3)
                assert (reply.status, reply.headers["connection"]) == (503, "close")
                assert await reader.read() == b""
            for _, writer in opened:
                writer.close()
            await asyncio.sleep(0.2)
            assert engine.running == 0
            failures = replica_cell(s._slots["chat/decode/0"], PerReplica.FAILURES)
            assert s.total(failures) == 0

    run(go())


# --- what other protocols and other requests bring ---


@pytest.mark.parametrize("body", [b"", None])
def test_an_offer_of_another_protocol_is_not_taken_up(body):
    async def go():
        async with Stack().up() as s:
            offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAMAAABk"}
            path, method = ("/v1/models", "GET") if body == b"" else ("/v1/completions", "POST")
            raw = request(prompt() if body is None else body, path, method, **offer)
            reader, writer = await s.connect()
            writer.write(raw + raw)
            for _ in range(2):
                assert (await asyncio.wait_for(read_reply(reader), 3)).status == 200
            writer.write(request(prompt()))
            assert (await asyncio.wait_for(read_reply(reader), 3)).status == 200
            writer.close()
            assert all("upgrade" not in seen["headers"] for seen in s.decodes[0].seen)

    run(go())


def test_many_offers_at_once_do_not_bring_the_worker_down():
    async def go():
        async with Stack().up() as s:
            one = request(b"", "/health", "GET", connection="Upgrade", upgrade="h2c")
            reader, writer = await s.connect()
            writer.write(one * 3000)
            statuses = []
            while not statuses or statuses[-1] == 200:
                statuses.append((await asyncio.wait_for(read_reply(reader), 5)).status)
            assert statuses == [200] * 8 + [400]
            writer.close()

    run(go())


def test_continue_waits_for_the_answer_before():
    async def go():
        async with Stack(decodes=[Engine("d0", step_s=0.05)]).up() as s:
            raw = request(prompt(), expect="100-continue")
            head, _, body = raw.partition(b"\r\n\r\n")
            for together in (False, True):
                reader, writer = await s.connect()
                first = request(prompt(stream=True))
                writer.write(first + head + b"\r\n\r\n" if together else first)
                if not together:
                    await reader.readuntil(b"t0 ")
                    writer.write(head + b"\r\n\r\n")
                    said = await reader.readuntil(b"0\r\n\r\n")
                    assert b"100 Continue" not in said
                else:
                    assert (await read_reply(reader)).events[-1] == "[DONE]"
                said = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2)
                assert said == b"HTTP/1.1 100 Continue\r\n\r\n"
                writer.write(body)
                assert (await asyncio.wait_for(read_reply(reader), 3)).status == 200
                writer.close()

    run(go())


def test_continue_is_not_said_once_the_body_is_there():
    async def go():
        async with Stack(decodes=[Engine("d0", step_s=0.02)]).up() as s:
            reader, writer = await s.connect()
            writer.write(
                request(prompt(stream=True)) + request(prompt(), expect="100-continue") + request(prompt())
            )
            assert (await read_reply(reader)).events[-1] == "[DONE]"
            for _ in range(2):
                assert (await read_reply(reader)).status == 200
            writer.close()

    run(go())


@pytest.mark.parametrize(
    "bad", [b"BAD\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", HEAD + b"Content-Length: 99999999999\r\n\r\n"]
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_bad_request_does_not_take_the_answers_before_it(bad, *, apart):
    async def go():
        async with Stack(decodes=[Engine("d0", step_s=0.02)]).up() as s:
            reader, writer = await s.connect()
            good = request(prompt(stream=True)) + request(prompt())
            writer.write(good if apart else good + bad)
            if apart:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(bad)
                assert b"[DONE]" in await reader.readuntil(b"0\r\n\r\n")
            else:
                assert (await read_reply(reader)).events[-1] == "[DONE]"
            assert (await read_reply(reader)).status == 200
            assert (await asyncio.wait_for(read_reply(reader), 3)).status in (400, 413)
            assert await reader.read() == b""
            writer.close()

    run(go())


@pytest.mark.parametrize("count", [20, 200])
def test_many_requests_at_once_are_answered_or_refused_in_turn(count):
    async def go():
        async with Stack().up() as s:
            for one in (request(prompt()), request(b"", "/health", "GET")):
                reader, writer = await s.connect()
                writer.write(one * count)
                replies = []
                while len(replies) < count:
                    replies.append((await asyncio.wait_for(read_reply(reader), 10)).status)
                    if replies[-1] != 200:
                        break
                writer.close()
                assert replies[:65] == [200] * min(65, count)
                assert replies[65:] in ([], [400], [200] * (count - 65))

    run(go())
