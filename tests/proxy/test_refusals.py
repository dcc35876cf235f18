"""What clients read of a request that is not served: the error object of their API, and the codings it knows."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from tests.proxy.engine import Engine
from tests.proxy.harness import FAST, Reply, Stack, read_reply, request, run

MESSAGE = {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "hello there"}]}


def said(reply: Reply, status: int, kind: str) -> bool:
    assert reply.status == status, reply.body
    body = reply.json
    assert set(body) == {"type", "error"}
    assert (body["type"], set(body["error"]), body["error"]["type"]) == ("error", {"type", "message"}, kind)
    return bool(body["error"]["message"])


@pytest.mark.parametrize(
    ("coding", "status"),
    [
        (b"gzip, chunked", 501), (b"GZIP , Chunked", 501), (b"identity,chunked", 501), (b"chunked, gzip", 400),
        (b"chunked, chunked", 400), (b"Chunked", 404), (b"chunked", 404), (b", chunked", 404),
    ],
)  # fmt: skip
def test_a_transfer_coding_that_is_not_understood_is_501_and_the_end(coding, status):
    async def go():
        async with Stack().up() as s:
            reader, writer = await s.connect()
            body = json.dumps({**MESSAGE, "model": "other"}).encode()
            head = b"POST /v1/messages HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: %b\r\n\r\n" % coding
            writer.write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            reply = await read_reply(reader)
            assert reply.status == status
            if status != 404:
                assert reply.headers["connection"] == "close"
                assert await reader.read() == b""
            writer.close()
            assert s.prefills[0].seen == s.decodes[0].seen == []

    run(go())


def test_refusals_of_messages_are_in_anthropics_form():
    async def go():
        os.environ["TEST_MESSAGES_KEY"] = "right"
        table = {
            "api_key": {"env": "TEST_MESSAGES_KEY"},
            "max_model_len": 100,
            "limits": {"body_bytes": 4096},
        }
        async with Stack(table=table).up() as s:

            async def ask(body, path: str = "/v1/messages") -> Reply:
                return await s.ask(body, path, authorization="Bearer right")

            assert said(await s.ask(MESSAGE, "/v1/messages"), 401, "authentication_error")
            assert said(await ask(b"{"), 400, "invalid_request_error")
            assert said(await ask({**MESSAGE, "stream": "perhaps"}), 400, "invalid_request_error")
            assert said(await ask({**MESSAGE, "model": "other"}), 404, "not_found_error")
            assert said(await ask({**MESSAGE, "system": "x" * 5000}), 413, "request_too_large")
            assert said(await ask(b"{", "/v1/messages/count_tokens"), 400, "invalid_request_error")
            assert said(await ask(MESSAGE, "/v1/messages/batches"), 404, "not_found_error")
            reply = await s.say(request(b"", "/v1/messages", "GET", authorization="Bearer right"))
            assert said(reply, 405, "invalid_request_error")
            assert set((await ask(b"{", "/v1/completions")).json) == {"error"}

    run(go())


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [(500, 502, "api_error"), (503, 503, "overloaded_error"), ("hang", 504, "timeout_error")],
)
def test_engines_that_fail_a_message_are_told_in_anthropics_form(fault, status, kind):
    async def go():
        stack = Stack(table={"retries": 0, "timeouts": {**FAST, "total_s": 1.0, "queue_s": 0.2}})
        async with stack.up() as s:
            s.decodes[0].script.extend([fault] * 9)
            assert said(await s.ask(MESSAGE, "/v1/messages"), status, kind)

    run(go())


def test_a_message_that_finds_the_queue_full_is_told_in_anthropics_form():
    async def go():
        table = {"admission": {"queue": 0, "max_requests": 1}}
        stack = Stack(decodes=[Engine("d0", step_s=0.1, tokens=4)], table=table)
        async with stack.up() as s:
            first = asyncio.ensure_future(s.ask(MESSAGE, "/v1/messages"))
            await asyncio.sleep(0.1)
            assert said(await s.ask(MESSAGE, "/v1/messages"), 429, "rate_limit_error")
            await first

    run(go())


def test_a_stream_of_a_message_that_breaks_ends_with_anthropics_event():
    async def go():
        stack = Stack(decodes=[Engine("d0", step_s=0.05, tokens=8)])
        async with stack.up() as s:
            reader, writer = await s.connect()
            writer.write(request({**MESSAGE, "stream": True}, "/v1/messages"))
            await reader.readuntil(b"t1 ")
            await s.decodes[0].stop()
            rest = await reader.readuntil(b"0\r\n\r\n")
            at = rest.index(b"event: error\n")
            event = json.loads(rest[at:].split(b"data: ", 1)[1].split(b"\n", 1)[0])
            assert (event["type"], event["error"]["type"]) == ("error", "api_error")
            writer.close()

    run(go())
