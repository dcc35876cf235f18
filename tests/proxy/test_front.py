import asyncio
import gzip
import os
from time import monotonic

import pytest

from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.gate import Wish
from tests.proxy.engine import Engine
from tests.proxy.harness import FAST, Stack, prompt, read_reply, request, run

HOST = b"Host: t\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n{}  ",
        b"POST /v1/completions HTTP/1.1\nHost: t\nContent-Length: 2\n\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: t\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: xchunked\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length : 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nHost: u\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"CONNECT t:80 HTTP/1.1\r\nHost: t\r\n\r\n",
        b"POST /health HTTP/1.1\r\nHost: t\r\nUpgrade: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_ambiguous_or_broken_requests_are_refused_and_closed(raw):
    async def go():
        async with Stack().up() as s:
            reader, writer = await s.connect()
            writer.write(raw)
            reply = await read_reply(reader)
            assert reply.status == 400
            assert await reader.read() == b""
            writer.close()
            assert s.prefills[0].seen == s.decodes[0].seen == []

    run(go())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"a":1',
        b'{"a" 1}',
        b"null",
        b'{"a":1}x',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b'{"a":[}',
        b"[" * 5000,
    ],
)
def test_bodies_that_are_no_json_object_get_400(body):
    async def go():
        async with Stack().up() as s:
            reply = await s.ask(body)
            assert reply.status == 400
            assert reply.json["error"]["type"] == "invalid_request_error"

    run(go())


def test_limits_of_head_and_body():
    async def go():
        stack = Stack(table={"limits": {"header_bytes": 2048, "body_bytes": 4096}})
        async with stack.up() as s:
            assert (await s.ask(prompt(), big="x" * 4000)).status == 431
            assert (await s.ask(prompt(prompt="x" * 5000))).status == 413
            chunked = (
                b"POST /v1/completions HTTP/1.1\r\n"
                + HOST
                + b"Transfer-Encoding: chunked\r\n\r\n"
                + b"400\r\n"
                + b"x" * 1024
                + b"\r\n"
            )
            reader, writer = await s.connect()
            writer.write(chunked + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 5)
            assert (await read_reply(reader)).status == 413
            writer.close()
            reader, writer = await s.connect()
            writer.write(b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 400)
            assert (await read_reply(reader)).status == 431
            writer.close()
            assert (await s.ask(gzip.compress(b"{}"), content_encoding="gzip")).status == 415

    run(go())


def test_api_key():
    async def go():
        os.environ["TEST_PROXY_KEY"] = "right"
        async with Stack(table={"api_key": {"env": "TEST_PROXY_KEY"}}).up() as s:
            assert (await s.ask(prompt())).status == 401
            assert (await s.ask(prompt(), authorization="Bearer wrong")).status == 401
            assert (await s.ask(prompt(), authorization="Bearer right2")).status == 401
            assert (await s.ask(prompt(), authorization="Bearer right")).status == 200
            assert (await s.ask(prompt(), x_api_key="right")).status == 200
            assert (await s.say(request(b"", "/health", "GET"))).status == 200
            assert s.prefills[0].seen[0]["headers"]["authorization"] == "Bearer right"
            assert s.total(Total.REFUSED_AUTH) == 3

    run(go())


def test_an_empty_key_never_opens_the_door():
    async def go():
        os.environ["TEST_PROXY_KEY2"] = "k"
        async with Stack().up() as s:
            os.environ["TEST_PROXY_KEY2"] = ""
            said = await s.order(s.routing(2, api_key={"env": "TEST_PROXY_KEY2"}))
            assert "empty" in said["refused"]

    run(go())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("ok-1.x", "ok-1.x"),
        ("abc-0123abcd", "abc-0123abcd.0"),
        ("evil id", None),
        ("x" * 200, None),
        ('a"b', None),
    ],
)
def test_request_ids(given, expected):
    async def go():
        async with Stack().up() as s:
            reply = await s.ask(prompt(), x_request_id=given)
            seen = {e.seen[0]["headers"]["x-request-id"] for e in (s.prefills[0], s.decodes[0])}
            assert seen == {reply.headers["x-request-id"]}
            assert seen == {expected} if expected else given not in seen

    run(go())


def test_headers_that_name_engines_stop_at_the_proxy():
    async def go():
        async with Stack().up() as s:
            await s.ask(
                prompt(),
                x_data_parallel_rank="3",
                cookie="c",
                x_forwarded_for="1.1.1.1",
                traceparent="00-1-2-01",
            )
            for engine in (s.prefills[0], s.decodes[0]):
                headers = engine.seen[0]["headers"]
                assert "x-data-parallel-rank" not in headers
                assert "cookie" not in headers
                assert headers["traceparent"] == "00-1-2-01"

    run(go())


@pytest.mark.parametrize(
    "target",
    [
        "http://10.0.0.1/sleep",
        "http:///v1/models",
        "ftp://t/v1/models",
        "http://t//v1/models",
        "/v1/../scale_elastic_ep",
        "/sleep",
        "/v1/load_lora_adapter",
        "//x",
        "/metrics",
    ],
)
def test_no_other_path_reaches_an_engine(target):
    async def go():
        async with Stack().up() as s:
            assert (await s.ask(b"{}", target)).status == 404
            assert s.prefills[0].seen == s.decodes[0].seen == []

    run(go())


def test_other_calls_go_to_any_engine():
    async def go():
        async with Stack().up() as s:
            assert (await s.say(request(b"", "/v1/models", "GET"))).json["data"][0]["id"] == "m"
            assert (await s.ask({"model": "m", "input": "x"}, "/v1/embeddings")).json[
                "path"
            ] == "/v1/embeddings"
            assert (await s.ask({"model": "m", "prompt": "x"}, "/tokenize")).json["count"] >= 0
            assert (await s.say(request(b"", "/v1/models", "DELETE"))).status == 405

    run(go())


def test_health_and_ready():
    async def go():
        async with Stack(table={"health": {"eject_after": 3, "open_s": 5.0}}).up() as s:
            assert (await s.say(request(b"", "/ready", "GET"))).status == 200
            await s.prefills[0].stop()
            await asyncio.gather(*(s.ask(prompt()) for _ in range(3)))
            assert (await s.say(request(b"", "/ready", "GET"))).status == 503
            assert (await s.say(request(b"", "/health", "GET"))).status == 200
            await s.prefills[0].start()

    run(go())


def test_pipelined_requests_are_answered_in_order():
    async def go():
        async with Stack().up() as s:
            reader, writer = await s.connect()
            writer.write(b"".join(request(prompt(max_tokens=n, stream=n % 2 == 0)) for n in (1, 2, 3, 4)))
            for n in (1, 2, 3, 4):
                reply = await read_reply(reader)
                assert reply.body.count(b"t") >= n
                assert f"t{n - 1} ".encode() in reply.body
                assert f"t{n} ".encode() not in reply.body
            writer.close()

    run(go())


def test_expect_continue_and_split_bytes():
    async def go():
        async with Stack().up() as s:
            raw = request(prompt(), expect="100-continue")
            head, _, body = raw.partition(b"\r\n\r\n")
            reader, writer = await s.connect()
            for i in range(0, len(head), 7):
                writer.write(head[i : i + 7])
                await asyncio.sleep(0)
            writer.write(b"\r\n\r\n")
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            for i in range(0, len(body), 50):
                writer.write(body[i : i + 50])
                await asyncio.sleep(0)
            assert (await read_reply(reader)).status == 200
            writer.close()

    run(go())


def test_a_client_that_never_finishes_its_request_is_closed():
    async def go():
        async with Stack(table={"timeouts": {**FAST, "client_read_s": 0.2}}).up() as s:
            for raw in (
                b"POST /v1/comp",
                b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 50\r\n\r\n{",
            ):
                reader, writer = await s.connect()
                writer.write(raw)
                reply = await asyncio.wait_for(read_reply(reader), 3)
                assert reply.status == 408
                writer.close()
            reader, writer = await s.connect()

            async def trickle():
                for byte in b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 500:
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.02)

            task = asyncio.ensure_future(trickle())
            assert (await asyncio.wait_for(read_reply(reader), 3)).status == 408
            task.cancel()
            writer.close()

    run(go())


def test_too_many_connections_are_told_so():
    async def go():
        async with Stack(table={"limits": {"connections": 2}}).up() as s:
            held = [await s.connect() for _ in range(2)]
            await asyncio.sleep(0.05)
            reader, writer = await s.connect()
            assert (await read_reply(reader)).status == 503
            for _, w in (*held, (reader, writer)):
                w.close()

    run(go())


def test_http_1_0_gets_whole_answers_only():
    async def go():
        async with Stack().up() as s:
            whole = request(prompt()).replace(b"HTTP/1.1", b"HTTP/1.0")
            assert (await s.say(whole)).status == 200
            stream = request(prompt(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0")
            assert (await s.say(stream)).status == 505

    run(go())


def test_unknown_model_and_engine_state():
    async def go():
        stack = Stack(decodes=[Engine("d0"), Engine("d1")])
        async with stack.up() as s:
            assert (await s.ask(prompt(model="other"))).status == 404
            body = {"model": "m", "input": "x" * 200, "previous_response_id": "resp_1"}
            assert (await s.ask(body, "/v1/responses")).status == 400
            assert s.prefills[0].seen == []

    run(go())


def test_lengths_are_checked_before_prefill_runs():
    async def go():
        async with Stack(table={"max_model_len": 100}).up() as s:
            ids = await s.ask(prompt(prompt=[1] * 97, max_tokens=4))
            assert ids.status == 400
            assert "97 tokens" in ids.json["error"]["message"]
            assert (await s.ask(prompt(prompt=[1] * 96, max_tokens=4))).status == 200
            near = await s.ask(prompt(prompt="x" * 390, max_tokens=4))
            assert near.status == 400 or s.total(Total.TOKENIZE_CALLS) == 1

    run(go())


def test_admission_queue_priorities_and_429():
    async def go():
        table = {
            "admission": {"queue": 2, "max_requests": 1}, "classes": {"fast": {"priority": 9}}, "default_class": "rest",
            "timeouts": {**FAST, "queue_s": 3.0},
        }  # fmt: skip
        stack = Stack(decodes=[Engine("d0", step_s=0.1, tokens=4)], table=table)
        async with stack.up() as s:
            order: list[str] = []

            async def one(name, **headers):
                reply = await s.ask(prompt(), **headers)
                order.append(f"{name}:{reply.status}")
                return reply

            tasks = [asyncio.ensure_future(one("first"))]
            await asyncio.sleep(0.05)
            tasks.append(asyncio.ensure_future(one("slow")))
            await asyncio.sleep(0.05)
            tasks.append(asyncio.ensure_future(one("fast", x_workload_class="fast")))
            await asyncio.sleep(0.05)
            refused = await s.ask(prompt())
            assert refused.status == 429
            assert int(refused.headers["retry-after"]) >= 1
            await asyncio.gather(*tasks)
            assert order == ["first:200", "fast:200", "slow:200"]
            assert s.total(Total.QUEUE) == 0

    run(go())


def test_bodies_that_wait_have_bounded_memory():
    async def go():
        stack = Stack(
            decodes=[Engine("d0", step_s=0.2, tokens=4)], table={"admission": {"queue": 8, "max_requests": 1}}
        )
        async with stack.up() as s:
            first = asyncio.ensure_future(s.ask(prompt()))
            await asyncio.sleep(0.05)
            gate, now = s.worker._service.gate, monotonic()
            large, other, small = (
                Wish(1.0, b"", False, lambda _: None, size) for size in (200 << 20, 100 << 20, 1 << 20)
            )
            gate.wait(large, 0, now)
            with pytest.raises(RefusedError) as refused:
                gate.wait(other, 0, now)
            assert (refused.value.status, refused.value.retry_after >= 1) == (429, True)
            gate.wait(small, 0, now)
            gate.give_up(large)
            gate.wait(other, 0, now)
            for wish in (small, other):
                gate.give_up(wish)
            gate.wait(Wish(1.0, b"", False, lambda _: None, 1 << 40), 0, now)  # one waits, whatever its size
            assert (await first).status == 200

    run(go())


def test_a_waiting_client_that_leaves_gives_its_place_up():
    async def go():
        stack = Stack(
            decodes=[Engine("d0", step_s=0.1, tokens=4)], table={"admission": {"queue": 8, "max_requests": 1}}
        )
        async with stack.up() as s:
            first = asyncio.ensure_future(s.ask(prompt()))
            await asyncio.sleep(0.05)
            _, writer = await s.connect()
            writer.write(request(prompt()))
            await asyncio.sleep(0.05)
            assert s.total(Total.QUEUE) == 1
            writer.close()
            await asyncio.sleep(0.05)
            assert s.total(Total.QUEUE) == 0
            assert (await first).status == 200
            assert (await s.ask(prompt())).status == 200

    run(go())


def test_drain_finishes_streams_and_takes_no_more():
    async def go():
        stack = Stack(decodes=[Engine("d0", step_s=0.05, tokens=10)])
        async with stack.up() as s:
            reader, writer = await s.connect()
            writer.write(request(prompt(stream=True, max_tokens=10)))
            await reader.readuntil(b"t1 ")
            s._writer.write(b'{"drain":true}\n')
            await reader.readuntil(b"t9 ")
            await reader.readuntil(b"0\r\n\r\n")
            assert await reader.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await s.connect()
            writer.close()

    run(go())
