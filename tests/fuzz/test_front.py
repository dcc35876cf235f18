"""Fuzz of the HTTP front: whatever a client sends, the proxy answers by the rules and goes on serving.

DISAGGC_FUZZ_SECONDS sets how long (30 s by default for both files together; `make soak` takes 10 minutes each).
"""

import asyncio
import json
import os
import random
import time

from disaggc.proxy.board import Total
from tests.fuzz.damage import damaged
from tests.proxy.harness import FAST, Stack, prompt, request, run

SECONDS = float(os.environ.get("DISAGGC_FUZZ_SECONDS", "30")) / 2
LIMITS = {**FAST, "client_read_s": 0.3, "prefill_s": 5.0, "first_byte_s": 5.0}
WORDS = [
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: x\r\n", b"\r\n", b"\n", b"\r", b"\x00", b"Connection: close\r\n",
    b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n", b"HTTP/1.1", b"HTTP/9.9", b"GET ", b"POST ", b"CONNECT a:1 ", b"0\r\n\r\n",
    b"ffffffffffffffff\r\n", b"{", b"}", b'"kv_transfer_params":{"a":1}', b"\xff\xfe", b"%00", b"/../", b"Content-Length: -1\r\n", b" " * 300,
]  # fmt: skip
PATHS = [
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/models",
    "/health",
    "/ready",
    "/x",
    "/v1/embeddings",
]
ALLOWED = {200, 400, 401, 404, 405, 408, 413, 415, 422, 429, 431, 502, 503, 504, 505}


def body(rng):
    said = prompt(stream=rng.random() < 0.5)
    for _ in range(rng.randrange(4)):
        key = rng.choice(
            [
                "n",
                "stream",
                "max_tokens",
                "prompt",
                "messages",
                "input",
                "stream_options",
                "kv_transfer_params",
                "vllm_xargs",
                "model",
                "echo",
                "\u0000",
                "best_of",
            ]
        )
        said[key] = rng.choice(
            [
                None,
                True,
                -1,
                0,
                2,
                1e99,
                "x",
                "m",
                [],
                {},
                [1, 2],
                [[1], [2]],
                {"include_usage": True},
                "\ud800",
                "a" * 2000,
                [["a"]],
            ]
        )
    raw = json.dumps(said).encode()
    return damaged(rng, raw, WORDS, most=5) if rng.random() < 0.4 else raw


def message(rng):
    method = rng.choice(["POST", "POST", "POST", "GET", "HEAD", "DELETE", "PUT", "OPTIONS"])
    raw = request(
        body(rng), rng.choice(PATHS), method, x_request_id=rng.choice(["a", "b\x7f", "-0123abcd", "x" * 300])
    )
    if rng.random() < 0.5:
        raw = damaged(rng, raw, WORDS, most=5)
    return raw if rng.random() < 0.8 else raw + request(body(rng))


async def statuses_of(s, raw, rng):
    reader, writer = await s.connect()
    try:
        at = 0
        # the loop lets nobody write to a connection that the proxy has refused by closing it
        while at < len(raw) and not writer.is_closing():
            step = rng.choice([1, 7, 100, 100_000])
            writer.write(raw[at : at + step])
            at += step
            await asyncio.sleep(0)
        if rng.random() < 0.2:
            writer.close()
            return []
        async with asyncio.timeout(10):
            data = await first_answers(reader)
    except (ConnectionError, TimeoutError):
        data = b""
    finally:
        writer.close()
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]


async def first_answers(reader):
    data = b""
    try:
        async with asyncio.timeout(0.5):
            while piece := await reader.read(65536):
                data += piece
    except TimeoutError:
        pass
    return data


def test_nothing_a_client_sends_breaks_the_proxy(caplog):
    async def go():
        rng = random.Random(20)  # noqa: S311 - repeatable noise
        async with Stack(
            table={"timeouts": LIMITS, "limits": {"body_bytes": 65536, "header_bytes": 4096}}
        ).up() as s:
            end, sent = time.monotonic() + SECONDS, 0
            while time.monotonic() < end:
                batch = [message(rng) for _ in range(40)]
                for statuses in await asyncio.gather(*(statuses_of(s, raw, rng) for raw in batch)):
                    assert set(statuses) <= ALLOWED | {100}, statuses
                sent += len(batch)
                for engine in (*s.prefills, *s.decodes):
                    engine.seen.clear()
            assert sent > 100
            await s.quiet(12)
            assert (await s.ask(prompt())).status == 200
            assert s.pinned <= s.total(Total.LEASES_LEFT)
            assert abs(s.total(Total.TOKENS_OPEN)) < 1e-3
            for replica in s.worker._service.fleet.replicas.values():
                assert replica.requests == 0
                assert abs(replica.work) < 1e-3

    run(go(), None)
    assert "bug" not in caplog.text
