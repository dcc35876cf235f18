import asyncio
import json
import socket
import time
from types import SimpleNamespace
from unittest import mock

import pytest

from disaggc.proxy import pool
from disaggc.proxy.board import PerClass, Total, class_cell
from disaggc.proxy.failures import LegError
from disaggc.proxy.outbox import Outbox
from tests.proxy.engine import Engine
from tests.proxy.harness import FAST, Stack, prompt, read_reply, request, run


def test_two_legs_whole_answer():
    async def go():
        async with Stack().up() as s:
            reply = await s.ask(
                prompt(min_tokens=2, n=1, logprobs=3, stop=["x"]),
                x_request_id="client-7",
                authorization="Bearer k",
            )
            assert reply.status == 200
            assert reply.json["choices"][0]["text"] == "t0 t1 t2 t3 "
            assert reply.headers["x-request-id"] == "client-7"
            first, second = s.prefills[0].seen[0], s.decodes[0].seen[0]
            assert first["body"]["max_tokens"] == 1
            assert first["body"]["stream"] is False
            assert first["body"]["kv_transfer_params"]["do_remote_decode"] is True
            assert not {"min_tokens", "n", "logprobs", "stream_options"} & set(first["body"])
            assert first["body"]["stop"] == ["x"]
            assert second["body"]["kv_transfer_params"]["remote_block_ids"]
            assert {k: v for k, v in second["body"].items() if k != "kv_transfer_params"} == prompt(
                min_tokens=2, n=1, logprobs=3, stop=["x"]
            )
            for leg in (first, second):
                assert leg["headers"]["x-request-id"] == "client-7"
                assert leg["headers"]["authorization"] == "Bearer k"
            assert s.pinned == 0

    run(go())


def test_two_legs_streaming_bytes_untouched():
    async def go():
        async with Stack().up() as s:
            reply = await s.ask(prompt(stream=True, stream_options={"include_usage": True}))
            assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert [e["choices"][0]["text"] for e in reply.events[:-2]] == ["t0 ", "t1 ", "t2 ", "t3 "]
            assert reply.events[-2]["usage"]["prompt_tokens"] == 100
            assert reply.events[-1] == "[DONE]"
            plain = await s.ask(prompt(stream=True))
            assert s.decodes[0].seen[-1]["body"]["stream_options"] == {"include_usage": True}
            assert all("usage" not in e for e in plain.events[:-1])
            assert len(plain.events) == 5

    run(go())


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
def test_every_api_has_two_legs(path):
    async def go():
        async with Stack().up() as s:
            text = "hello " * 100
            body = {"model": "m", "max_tokens": 3, "max_completion_tokens": 9} | (
                {"input": text, "max_output_tokens": 50}
                if "responses" in path
                else {"messages": [{"role": "user", "content": text}]}
            )
            assert (await s.ask(body, path)).status == 200
            first = s.prefills[0].seen[0]
            assert first["path"] == path
            limits = {k: v for k, v in first["body"].items() if k.startswith("max_")}
            assert set(limits.values()) == {1}
            if "responses" in path:
                assert limits == {"max_output_tokens": 1}

    run(go())


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2}, {"best_of": 3}, {"echo": True}, {"prompt_logprobs": 1}, {"use_beam_search": True},
        {"prompt": ["a" * 400, "b" * 400]}, {"prompt": [[1] * 50, [2] * 50]}, {"prompt": "short"},
    ],
)  # fmt: skip
def test_what_cannot_have_two_legs_runs_on_decode_alone(more):
    async def go():
        async with Stack().up() as s:
            assert (await s.ask(prompt(**more))).status == 200
            assert s.prefills[0].seen == []
            assert "kv_transfer_params" not in s.decodes[0].seen[0]["body"]

    run(go())


def test_client_parameters_are_stripped_both_ways():
    async def go():
        async with Stack().up() as s:
            evil = {"remote_block_ids": [[1]], "remote_host": "10.9.9.9"}
            body = prompt(vllm_xargs={"kv_transfer_params": "x", "keep": 1, "remote_host": "y"})
            raw = (
                json.dumps(body)[:-1]
                + ',"kv\\u005ftransfer_params":'
                + json.dumps(evil)
                + ',"kv_transfer_params":null}'
            )
            s.decodes[0].script.append("leak")
            reply = await s.ask(raw.encode())
            assert b"10.1.2.3" not in reply.body
            assert reply.json["kv_transfer_params"] is None
            for leg in (s.prefills[0].seen[0], s.decodes[0].seen[0]):
                assert b"10.9.9.9" not in leg["raw"]
            assert s.decodes[0].seen[0]["body"]["vllm_xargs"] == {"keep": 1}
            s.decodes[0].script.append("leak")
            reply = await s.ask(prompt(stream=True))
            assert b"10.1.2.3" not in reply.body
            assert reply.complete
            assert s.total(Total.PARAMS_SCRUBBED) == 2

    run(go())


@pytest.mark.parametrize(
    "fault", [500, 503, "reset", "hang", "error-200", "abort-200", "no-params", "garbage"]
)
def test_failed_prefill_is_tried_elsewhere(fault):
    async def go():
        stack = Stack(prefills=[Engine("p0", script=_deque(fault)), Engine("p1", script=_deque(fault))])
        stack.prefills[1].script.clear()
        stack.table = {"policy": "round-robin"}
        async with stack.up() as s:
            replies = [await s.ask(prompt()) for _ in range(2)]
            assert [r.status for r in replies] == [200, 200]
            await s.quiet()
            assert s.pinned == 0

    run(go())


def _deque(*faults):
    from collections import deque

    return deque(faults)


@pytest.mark.parametrize(
    "fault", [500, 503, "reset", "hang", "error-200", "abort-200", "empty-200", "garbage"]
)
@pytest.mark.parametrize("stream", [False, True])
def test_failed_decode_gets_a_new_prefill_and_another_decode(fault, stream):
    async def go():
        limits = {
            "timeouts": {
                **__import__("tests.proxy.harness", fromlist=["FAST"]).FAST,
                "total_s": 1.5 if not stream else 5.0,
            }
        }
        if fault == "hang" and not stream:
            pytest.skip("a whole answer has no first byte before its last; covered by the total deadline")
        stack = Stack(
            decodes=[Engine("d0", script=_deque(fault)), Engine("d1", script=_deque(fault))], table=limits
        )
        async with stack.up() as s:
            s.decodes[1].script.clear()
            replies = [await s.ask(prompt(stream=stream)) for _ in range(2)]
            assert [r.status for r in replies] == [200, 200]
            await s.quiet()
            params = [
                json.dumps(r["body"]["kv_transfer_params"])
                for e in s.decodes
                for r in e.seen
                if r["body"]["model"] == "m"
            ]
            assert len(params) == len(set(params)), "parameters were used twice"
            assert len(s.prefills[0].seen) == len(params)
            assert s.pinned == 0

    run(go())


def test_hanging_decode_of_a_whole_answer_ends_by_the_total_deadline():
    async def go():
        from tests.proxy.harness import FAST

        stack = Stack(
            decodes=[Engine("d0", script=_deque("hang"))], table={"timeouts": {**FAST, "total_s": 0.6}}
        )
        async with stack.up() as s:
            reply = await s.ask(prompt())
            assert reply.status == 504
            await s.quiet()
            assert s.decodes[0].aborted == 1

    run(go())


@pytest.mark.parametrize("policy", ["retry", "decode-locally", "error"])
def test_policy_when_every_prefill_fails(policy):
    async def go():
        stack = Stack(table={"on_prefill_failure": policy})
        async with stack.up() as s:
            s.prefills[0].script.extend([500] * 10)
            reply = await s.ask(prompt())
            if policy == "decode-locally":
                assert reply.status == 200
                assert "kv_transfer_params" not in s.decodes[0].seen[0]["body"]
            else:
                assert reply.status == 502
                assert len(s.prefills[0].seen) == (3 if policy == "retry" else 1)
                assert s.decodes[0].seen == []

    run(go())


def test_refusal_of_an_engine_reaches_the_client_without_retry():
    async def go():
        async with Stack().up() as s:
            s.prefills[0].script.append(400)
            assert (await s.ask(prompt())).status == 400
            assert len(s.prefills[0].seen) == 1
            s.decodes[0].script.append(422)
            assert (await s.ask(prompt())).status == 422
            await s.quiet()
            assert s.pinned == 0
            assert s.total(Total.RELEASES) == 1

    run(go())


@pytest.mark.parametrize("fault", ["drop-mid", "error-mid", "hang-mid", "abort-end", "drop-mid-chunk"])
def test_stream_that_breaks_says_so(fault):
    async def go():
        async with Stack().up() as s:
            s.decodes[0].script.append(fault)
            reply = await s.ask(prompt(stream=True))
            assert reply.status == 200
            assert reply.complete
            assert reply.events[-1]["error"]["message"]
            assert not any(
                isinstance(e, dict) and e.get("choices", [{}])[0].get("finish_reason") == "abort"
                for e in reply.events
            )
            await s.quiet()
            assert len(s.decodes[0].seen) == 1

    run(go())


def test_client_leaving_between_legs_releases_the_prefill():
    async def go():
        stack = Stack(decodes=[Engine("d0", step_s=0.2)])
        async with stack.up() as s:
            s.decodes[0].script.append("hang")
            _, writer = await s.connect()
            writer.write(request(prompt(stream=True)))
            while not s.decodes[0].seen:
                await asyncio.sleep(0.01)
            assert s.pinned == 1
            writer.close()
            await s.quiet()
            assert s.pinned == 0
            assert s.decodes[0].aborted == 1
            assert s.total(Total.RELEASES) == 1

    run(go())


@pytest.mark.parametrize("when", ["prefill", "stream"])
def test_client_leaving_stops_the_engine(when):
    async def go():
        stack = Stack(prefills=[Engine("p0", prefill_s=0.3)], decodes=[Engine("d0", step_s=0.05, tokens=100)])
        async with stack.up() as s:
            reader, writer = await s.connect()
            writer.write(request(prompt(stream=True, max_tokens=100)))
            if when == "stream":
                await reader.readuntil(b"t1 ")
            else:
                while not s.prefills[0].seen:
                    await asyncio.sleep(0.01)
            writer.close()
            await s.quiet()
            await asyncio.sleep(0.05)
            engine = s.prefills[0] if when == "prefill" else s.decodes[0]
            assert engine.aborted == 1
            assert engine.running == 0
            assert s.pinned == 0

    run(go())


def test_only_pairs_of_one_cohort():
    async def go():
        stack = Stack(prefills=[Engine("p0"), Engine("p1")], decodes=[Engine("d0"), Engine("d1")])
        stack.cohorts = {"p0": "old", "d0": "old", "p1": "new", "d1": "new"}
        async with stack.up() as s:
            for _ in range(12):
                assert (await s.ask(prompt())).status == 200
            for p, d in zip(s.prefills, s.decodes, strict=True):
                assert p.seen
                assert {r["body"]["kv_transfer_params"]["remote_engine_id"] for r in d.seen} == {p.name}

    run(go())


def test_prefill_lost_in_one_cohort_moves_the_request_to_the_other():
    async def go():
        stack = Stack(prefills=[Engine("p0"), Engine("p1")], decodes=[Engine("d0"), Engine("d1")])
        stack.cohorts = {"p0": "old", "d0": "old", "p1": "new", "d1": "new"}
        async with stack.up() as s:
            await s.prefills[0].stop()
            for _ in range(8):
                assert (await s.ask(prompt())).status == 200
            assert s.decodes[0].seen == []

    run(go())


def test_circuit_opens_and_closes():
    async def go():
        stack = Stack(decodes=[Engine("d0"), Engine("d1")])
        async with stack.up() as s:
            s.decodes[0].script.extend([500] * 3)
            for _ in range(12):
                assert (await s.ask(prompt())).status == 200

            def asked():
                return sum(r["body"]["model"] == "m" for r in s.decodes[0].seen)

            assert asked() == 3
            await asyncio.sleep(0.35)
            for _ in range(4):
                assert (await s.ask(prompt())).status == 200
            assert asked() > 3

    run(go())


def test_flexible_pool_changes_ratio_by_table_alone():
    async def go():
        stack = Stack(prefills=[], decodes=[Engine("f0"), Engine("f1"), Engine("f2")])

        def table(generation, split):
            t = stack.routing(generation)
            t["pools"][0] |= {"role": "flexible", "split": split}
            return t

        async with stack.up() as s:
            await s.order(table(2, [1, 2]))
            for _ in range(4):
                await s.ask(prompt())
            assert len(s.decodes[0].seen) == 4
            assert all(r["body"]["kv_transfer_params"]["do_remote_decode"] for r in s.decodes[0].seen)
            await s.order(table(3, [2, 1]))
            for _ in range(4):
                await s.ask(prompt())
            assert any(r["body"]["kv_transfer_params"].get("do_remote_decode") for r in s.decodes[1].seen)

    run(go())


def test_a_new_table_touches_no_stream():
    async def go():
        stack = Stack(decodes=[Engine(name, step_s=0.05, tokens=10) for name in ("d0", "d1")])
        async with stack.up() as s:
            reader, writer = await s.connect()
            writer.write(request(prompt(stream=True, max_tokens=10)))
            await reader.readuntil(b"t1 ")
            first = 0 if s.decodes[0].seen else 1
            table = stack.routing(2)
            del table["pools"][1]["replicas"][first]
            await s.order(table)
            await reader.readuntil(b"t9 ")
            await reader.readuntil(b"0\r\n\r\n")
            writer.close()
            for _ in range(3):
                await s.ask(prompt(max_tokens=1))
            assert len(s.decodes[1 - first].seen) == 3

    run(go())


def test_stale_connection_is_replaced_without_an_error():
    async def go():
        async with Stack(prefills=[], decodes=[Engine("d0")]).up() as s:
            for _ in range(5):
                assert (await s.ask(prompt())).status == 200
                s.decodes[0].script.append("reset")
                assert (await s.ask(prompt())).status == 200
            assert s.total(Total.STALE_RETRIES) == 5

    run(go())


def test_dead_service_answers_503_and_recovers():
    async def go():
        stack = Stack()
        async with stack.up() as s:
            await s.decodes[0].stop()
            statuses = [(await s.ask(prompt())).status for _ in range(4)]
            assert set(statuses) <= {502, 503}
            await s.decodes[0].start()
            await asyncio.sleep(0.35)
            assert (await s.ask(prompt())).status == 200
            await s.quiet()

    run(go())


def test_slow_reader_pauses_the_engine_and_is_closed():
    async def go():
        stack = Stack(decodes=[Engine("d0", tokens=1_000_000)], table={"max_model_len": 1 << 24})
        async with stack.up() as s:
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(client, ("127.0.0.1", s.port))
                await loop.sock_sendall(client, request(prompt(stream=True, max_tokens=1_000_000)))
                async with asyncio.timeout(20):
                    while not s.decodes[0].aborted:
                        await asyncio.sleep(0.05)
                await s.quiet()

    run(go())


async def _many(s, count):
    async def one():
        reader, writer = await s.connect()
        writer.write(request(prompt(stream=True)))
        reply = await read_reply(reader)
        writer.close()
        return reply

    return await asyncio.gather(*(one() for _ in range(count)))


def test_burst_of_connections():
    async def go():
        async with Stack().up() as s:
            replies = await _many(s, 300)
            assert all(r.status == 200 and r.events[-1] == "[DONE]" for r in replies)
            assert s.pinned == 0
            assert s.total(Total.TOKENS_OPEN) == pytest.approx(0)

    run(go())


def test_prefill_that_finished_as_the_client_left_is_released():
    async def go():
        async with Stack().up() as s:
            for _ in range(40):
                _, writer = await s.connect()
                writer.write(request(prompt(stream=True)))
                while not s.prefills[0].running:
                    await asyncio.sleep(0)
                writer.close()
                await s.quiet()
            assert s.pinned == 0

    run(go())


def test_what_decode_has_cached_is_not_handed_over_again():
    async def go():
        stack = Stack(table={"skip_prefill_below": 50})
        async with stack.up() as s:
            shared = "system prompt " * 400
            first = await s.ask(prompt(prompt=shared + "one"))
            again = await s.ask(prompt(prompt=shared + "two"))
            other = await s.ask(prompt(prompt="x" + shared + "three"))
            assert {r.status for r in (first, again, other)} == {200}
            remote = ["kv_transfer_params" in r["body"] for r in s.decodes[0].seen]
            assert remote == [True, False, True]

    run(go())


@pytest.mark.parametrize("proxies", [1, 2])
def test_affinity_keeps_a_session_on_its_replica(proxies):
    async def go():
        table = {"policy": "prefix-affinity", "proxies": proxies}
        stack = Stack(decodes=[Engine(f"d{i}") for i in range(4)], table=table)
        async with stack.up() as s:
            for session in range(6):
                for turn in range(5):
                    await s.ask(prompt(prompt=f"turn {turn} " * 50), x_session_id=f"s{session}")
            assert sum(len(e.seen) for e in s.decodes) == 30
            assert all(len(e.seen) % 5 == 0 for e in s.decodes)

    run(go())


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_that_decode_fetched_are_not_called_cached(stream):
    async def go():
        async with Stack().up() as s:
            for text, cached in (("hello world " * 40, 16), ("short", 32)):
                reply = await s.ask(
                    prompt(
                        prompt=text, stream=stream, stream_options={"include_usage": True} if stream else None
                    )
                )
                usage = reply.events[-2]["usage"] if stream else reply.json["usage"]
                assert usage == {
                    "prompt_tokens": 100, "completion_tokens": 4, "total_tokens": 104,
                    "prompt_tokens_details": {"cached_tokens": cached},
                }  # fmt: skip
            await s.quiet()
            assert s.total(class_cell(0, PerClass.TOKENS_CACHED)) == 48

    run(go())


@pytest.mark.parametrize(
    ("path", "content", "handed"),
    [
        ("/v1/chat/completions", "hello " * 100, True),
        ("/v1/chat/completions", [{"type": "image_url", "image_url": {"url": "data:,x"}}], False),
        ("/v1/messages", "hello " * 100, False),
    ],
)
def test_decode_of_a_chat_gets_the_tokens_that_prefill_made(path, content, handed):
    async def go():
        async with Stack().up() as s:
            padding = {"role": "system", "content": "be kind " * 60}
            reply = await s.ask(
                {"model": "m", "messages": [padding, {"role": "user", "content": content}]}, path
            )
            assert reply.status == 200
            params = s.decodes[0].seen[0]["body"]["kv_transfer_params"]
            assert params.get("prompt_token_ids") == ([7, 8, 9] if handed else None)
            assert params["remote_block_ids"]

    run(go())


def test_an_opening_that_is_given_up_as_it_succeeds_leaves_no_socket():
    async def go():
        async with Stack(table={"timeouts": {**FAST, "connect_s": 0.02}}).up() as s:
            asking = asyncio.ensure_future(s.ask(prompt()))
            while not s.connections:
                await asyncio.sleep(0)
            time.sleep(0.05)  # noqa: ASYNC251 - nothing runs: the deadline and the connection come at once
            assert (await asking).status in (200, 502, 503, 504)
            await s.quiet()
            made = [c for c in s.connections if c._transport is not None]
            assert made
            assert any(c._transport.get_extra_info("socket") is None for c in made)

    run(go())


def test_a_connection_that_is_lost_before_it_is_handed_over_fails_the_call_at_once():
    async def lost(factory, *_, **__):
        return None, factory()  # it has no transport any more

    async def go():
        home = pool.ConnectionPool("127.0.0.1", 1, tls=None, idle_s=1.0, outbox=Outbox())
        told = []
        opener = SimpleNamespace(opened=told.append, failed=told.append)
        loop = SimpleNamespace(create_connection=lost)
        with mock.patch.object(pool.asyncio, "get_running_loop", return_value=loop):
            await home._open(opener, 0.5)
        assert [type(said) for said in told] == [LegError]

    run(go())
