"""What the proxy counts: by class, only what generates; a gap for every token; what prefill had cached, and no more."""

import random
from types import SimpleNamespace

import pytest

from disaggc.proxy.asks import CHAT
from disaggc.proxy.board import TIME_BINS, PerClass, Timing, Total, class_cell, timing_cell
from disaggc.proxy.front import Front
from disaggc.proxy.service import class_names
from disaggc.proxy.stream import Changes, Stream
from disaggc.routing.table import RoutingTable
from tests.proxy.engine import Engine
from tests.proxy.harness import Stack, prompt, request, run
from tests.proxy.paired import Engines
from tests.simengine.doubles import transfer


def _count(stack, timing, position=0):
    return sum(stack.board.row(timing_cell(position, timing), TIME_BINS))


def test_only_what_generates_counts_by_class():
    async def go():
        async with Stack().up() as s:
            for _ in range(3):
                assert (await s.ask(prompt())).status == 200
            for path, status in (("/ready", 200), ("/health", 200), ("/v1/models", 200), ("/nowhere", 404)):
                assert (await s.say(request(b"", path, "GET"))).status == status
            await s.quiet()
            s.worker._service.tally.digest()
            assert _count(s, Timing.E2E) == 3
            assert s.total(class_cell(0, PerClass.REQUESTS)) == s.total(class_cell(0, PerClass.OK)) == 3
            assert s.total(class_cell(0, PerClass.CLIENT_ERROR)) == 0
            assert s.total(Total.OTHER_REQUESTS) == 4

    run(go())


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("step", [0.0, 0.01])
def test_there_is_a_gap_between_any_two_tokens(usage, step):
    async def go():
        async with Stack(decodes=[Engine("d0", tokens=40, step_s=step)]).up() as s:
            more = {"stream_options": {"include_usage": True}} if usage else {}
            reply = await s.ask(prompt(stream=True, max_tokens=40, **more))
            assert sum(bool(e["choices"]) for e in reply.events[:-1]) == 40
            await s.quiet()
            s.worker._service.tally.digest()
            # tokens that came with the first one have no gap anybody saw
            assert _count(s, Timing.ITL) == 39 if step else _count(s, Timing.ITL) <= 39

    run(go())


@pytest.mark.parametrize("together", [1, 2, 5])
def test_the_mean_gap_does_not_depend_on_how_tokens_were_read(together, monkeypatch):
    clock = iter(range(1000))
    event = b'data: {"choices":[{"index":0,"text":"x"}]}\n\n'
    framed = b"%x\r\n%b\r\n" % (len(event), event)

    async def go():
        async with Stack().up() as s:
            service = s.worker._service
            nobody = Front(service, set(), lambda *_: None)
            times = service.tally.times[0]
            listener = SimpleNamespace(service=service, front=nobody, times=times)
            stream = Stream(listener, Changes(CHAT, hide_usage=False, remote=False, cached=None))
            with monkeypatch.context() as patch:
                patch.setattr("disaggc.proxy.stream.monotonic", lambda: next(clock) * 0.01 * together)
                stream.segment(framed)
                for _ in range(20 // together):
                    stream.segment(framed * together)
            gaps = times[Timing.ITL].copy()
            assert len(gaps) == 20
            assert gaps == pytest.approx([0.01] * 20)

    run(go())


def test_cached_is_what_prefill_had_and_not_what_decode_fetched():
    async def go():
        stack = Stack(prefills=[Engines(*transfer())], decodes=[Engines(*transfer())])
        async with stack.up() as s:
            words = random.Random(7)  # noqa: S311 - a test
            for _ in range(4):
                text = " ".join(f"w{words.randrange(10**6)}" for _ in range(60))
                assert (await s.ask(prompt(prompt=text))).status == 200
            assert await s.decodes[0].fetched() > 0
            assert s.total(class_cell(0, PerClass.TOKENS_CACHED)) == 0
            tokens = s.total(class_cell(0, PerClass.TOKENS_IN))
            assert (await s.ask(prompt(prompt=text))).status == 200
            cached = s.total(class_cell(0, PerClass.TOKENS_CACHED))
            assert 0 < cached < s.total(class_cell(0, PerClass.TOKENS_IN)) - tokens + 1

    run(go())


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"classes": {"reasoning": {}}}, ("reasoning",)),
        ({"classes": {"b": {}, "a": {}}}, ("default", "a", "b")),
        ({"classes": {"a": {}}, "default_class": "rest"}, ("rest", "a")),
        ({"classes": {"b": {}, "a": {}}, "default_class": "b"}, ("b", "a")),
        ({}, ("default",)),
    ],
)
def test_the_class_of_requests_that_name_none(table, expected):
    stack = Stack()
    for engine in (*stack.prefills, *stack.decodes):
        engine.port = 1
    assert class_names(RoutingTable.model_validate({**stack.routing(), **table})) == expected


def test_requests_without_the_header_count_under_the_only_class():
    async def go():
        async with Stack(table={"classes": {"reasoning": {"priority": 3}}}).up() as s:
            for headers in ({}, {"x_workload_class": "reasoning"}, {"x_workload_class": "unheard-of"}):
                assert (await s.ask(prompt(), **headers)).status == 200
            assert s.worker._service.class_names == ("reasoning",)
            assert s.worker._service.priorities == [3]
            assert s.total(class_cell(0, PerClass.OK)) == 3

    run(go())


@pytest.mark.parametrize("text", ["Hello", "word " * 3000])
def test_a_length_that_is_refused_is_told_as_what_it_is(text):
    async def go():
        async with Stack().up() as s:
            for _ in range(40):
                s.worker._service.lengths.learn(400, 100)
            reply = await s.ask(prompt(prompt=text, max_tokens=400_000))
            assert reply.status == 400
            expected = round((len(text) + 2) / 4)  # the quotes count, this API takes the prompt in JSON
            assert (
                f"the prompt has about {expected} tokens and 400000 are wanted"
                in reply.json["error"]["message"]
            )

    run(go())
