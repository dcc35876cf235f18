"""Numbers that no client means and no engine can say: they spoil nothing for others, and deadlines hold after them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

import pytest

from disaggc.proxy.board import Shared, Total
from disaggc.proxy.probes import read_load
from tests.proxy.harness import Stack, prompt, run
from tests.proxy.spoken import CHUNKED, DONE, Spoken, chunk, streamed, token, whole

NUMBERS = ["-5", "9" * 19, "9" * 30, "9" * 308, "9" * 400, "1" + "0" * 12]
KEPT = {
    "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [[1]], "remote_engine_id": "p0",
    "remote_host": "127.0.0.1", "remote_port": 5600,
}  # fmt: skip
DETAILS = '{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":@}}'


def prefilled(usage="{}", cached="0"):
    said = {
        "choices": [{"finish_reason": "length"}],
        "kv_transfer_params": {**KEPT, "remote_prefill_cached_tokens": "C"},
    }
    text = json.dumps({**said, "usage": "U"}).replace('"C"', cached).replace('"U"', usage)
    return whole(text.encode())


def answers_of(number):
    """What a prefill and a decode engine say, with the number wherever one says how many tokens."""
    usage = f'{{"prompt_tokens":{number},"completion_tokens":{number},"prompt_tokens_details":{{"cached_tokens":{number}}}}}'
    said = b'{"choices":[{"text":"x","finish_reason":"stop"}],"usage":%b}' % usage.encode()
    stream = streamed(
        token("a"), token("b", "stop"), b'data: {"choices":[],"usage":%b}\n\n' % usage.encode(), DONE
    )
    return [
        ([prefilled(usage)], [], False), ([prefilled(DETAILS.replace("@", number))], [], True),
        ([prefilled(cached=number)], [], False), ([prefilled(cached=number)], [], True),
        ([], [whole(said)], False), ([], [stream], True),
    ]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_what_an_engine_counts_spoils_nothing(number, caplog):
    async def go():
        prefill, decode = Spoken("p0"), Spoken("d0")
        async with Stack(prefills=[prefill], decodes=[decode]).up() as s:
            for first, second, stream in answers_of(number):
                prefill.answers.extend(first)
                decode.answers.extend(second)
                reply = await s.ask(prompt(stream=stream))
                assert reply.status == 200, reply
                assert (await s.ask(prompt(stream=stream))).status == 200
            await s.quiet()
            assert s.total(Total.TOKENS_OPEN) == 0
            service = s.worker._service
            assert 0 <= service.mean_output < 4096
            assert 0 < service.lengths.tokens(100) < 409_600
            decode.answers.append([CHUNKED + chunk(token("a"))])
            decode.pause_s = 2.0
            late = await s.ask(prompt(stream=True))
            assert "timeout" in late.events[-1]["error"]["message"]

    run(go())
    assert "bug" not in caplog.text
    assert "Fatal" not in caplog.text


@pytest.mark.parametrize("number", [*NUMBERS, f'"{"9" * 400}"', f'"{"9" * 311}"'])
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/completions", {"prompt": "hello"}), ("/v1/completions", {"prompt": [1, 2, 3]}),
        ("/v1/completions", {"prompt": "hello", "n": 2}), ("/v1/chat/completions/batch", {"messages": []}),
    ],
)  # fmt: skip
def test_what_a_client_wants_is_refused_or_served(number, path, said, caplog):
    async def go():
        async with Stack().up() as s:
            body = json.dumps({"model": "m", **said, "max_tokens": "N"}).replace('"N"', number).encode()
            reply = await s.ask(body, path)
            assert reply.status in {200, 400}, reply
            assert (await s.ask(prompt())).status == 200
            await s.quiet()
            assert s.total(Total.TOKENS_OPEN) == 0

    run(go())
    assert "bug" not in caplog.text


@dataclass(eq=False)
class Counting(Spoken):
    number: str = "1"

    async def _answer(self, path, body, writer):
        if path != "/tokenize":
            return await super()._answer(path, body, writer)
        return self._whole(writer, 200, b'{"count":%b}' % self.number.encode())


@pytest.mark.parametrize("number", NUMBERS)
def test_what_tokenize_counts_is_believed_only_where_it_can_be(number, caplog):
    async def go():
        engines = [Counting(name, number=number) for name in ("p0", "d0")]
        async with Stack(prefills=engines[:1], decodes=engines[1:]).up() as s:
            reply = await s.ask(prompt(prompt="x" * 16_200))
            assert reply.status in {200, 400}, reply
            assert s.total(Total.TOKENIZE_CALLS) == 1
            await s.quiet()
            assert s.total(Total.TOKENS_OPEN) == 0

    run(go())
    assert "bug" not in caplog.text


def test_a_bug_at_the_end_of_a_stream_ends_that_request_only(caplog):
    async def go():
        async with Stack(decodes=[Spoken("d0")]).up() as s:
            lengths, s.worker._service.tally.lengths = s.worker._service.tally.lengths, []
            reply = await s.ask(prompt(stream=True))
            assert reply.events[-1] == "[DONE]"
            await s.quiet()
            assert (
                s.total(Total.REQUESTS_OPEN) == s.total(Total.STREAMS_OPEN) == s.total(Total.TOKENS_OPEN) == 0
            )
            s.worker._service.tally.lengths = lengths
            assert (await s.ask(prompt(stream=True))).status == 200

    run(go())
    assert "a request met a bug" in caplog.text
    assert "Fatal" not in caplog.text


class Broken:
    """A client connection whose deadlines cannot be looked at."""

    running = None
    aborted = False

    def tick(self, _):
        raise ZeroDivisionError

    def abort(self):
        self.aborted = True


def test_a_bug_in_a_deadline_leaves_all_others_theirs(caplog):
    async def go():
        broken, decode = Broken(), Spoken("d0")
        async with Stack(decodes=[decode]).up() as s:
            s.worker._fronts.add(broken)
            times, s.worker._service.tally.times = s.worker._service.tally.times, []
            await asyncio.sleep(0.6)
            s.worker._fronts.discard(broken)
            s.worker._service.tally.times = times
            assert broken.aborted
            decode.script.append("hang-mid")
            late = await s.ask(prompt(stream=True))
            assert "timeout" in late.events[-1]["error"]["message"]

    run(go())
    assert "ZeroDivisionError" in caplog.text


def test_gauges_that_are_no_numbers_are_no_load():
    said = 'vllm:num_requests_waiting{engine="%d"} %s\n'
    metrics = "".join(said % (i, text) for i, text in enumerate(("NaN", "3", "+Inf", "-7", "x", "2.0")))
    assert read_load(metrics)[Shared.WAITING] == 5.0
