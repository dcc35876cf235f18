"""Answers of engines in every layout that HTTP and server-sent events allow: what the client gets of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.proxy.board import Total
from disaggc.proxy.eventstream import MAX_EVENT, EventBorders, UnchunkedBorders, split_events
from disaggc.proxy.framing import LAST_CHUNK, BadAnswerError, chunk, dechunk
from tests.proxy.harness import Stack, run
from tests.proxy.spoken import CHUNKED, CLOSE, DONE, HEAD, Spoken, event, streamed, token, whole

SECRET = b"10.9.8.7"
PARAMS = {"kv_transfer_params": {"remote_host": SECRET.decode(), "remote_block_ids": [[7]]}}
LEAK = token("b", "length", **PARAMS)
NO_PARAMS = token("b", "length", kv_transfer_params=None)
USAGE = {"id": "d", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
FAILED = event({"error": {"message": "boom", "code": 500}})
SAID = "the engine stopped before the end"


def ask(answers, body=None, path="/v1/completions", **table):
    """The replies to as many requests as there are answers, and the parameters that were taken out."""

    async def go():
        engine = Spoken("d0")
        table.setdefault("retries", 0)
        async with Stack(prefills=[], decodes=[engine], table=table).up() as s:
            engine.answers.extend(answers)
            asked = body or {"model": "m", "prompt": "hi", "max_tokens": 4, "stream": True}
            replies = []
            while engine.answers:
                replies.append(await s.ask(asked, path))
                assert replies[-1].complete
            after = await s.ask({"model": "m", "prompt": "hi", "max_tokens": 1})
            assert after.status == 200, after.body
            await s.quiet()
            return replies, s.total(Total.PARAMS_SCRUBBED)

    return run(go())


def texts(reply):
    return "".join(c["text"] for e in reply.events if e != "[DONE]" for c in e.get("choices", []))


# --- what is not for the client ---


def test_parameters_in_any_two_chunks_stay_inside():
    cuts = range(1, len(LEAK))
    replies, scrubbed = ask(
        [streamed(token("a"), LEAK[:at], LEAK[at:], DONE) for at in cuts],
        timeouts={"gap_s": 5.0},
    )
    assert scrubbed == len(cuts)
    for reply in replies:
        assert SECRET not in reply.body
        assert (reply.status, texts(reply), reply.events[-1]) == (200, "ab", "[DONE]")


@pytest.mark.parametrize(
    "layout",
    [
        [token("a"), LEAK.replace(b"\n", b"\r\n"), DONE], [LEAK], [LEAK + DONE], [token("a") + LEAK + DONE],
        [token("a"), LEAK.replace(b'params":', b'params"\ndata: :'), DONE],
        [token("a"), LEAK.replace(b'params":', b'params":\ndata: '), DONE],
        [LEAK[:20], LEAK[20:60], LEAK[60:-1], LEAK[-1:] + DONE], [token("a"), LEAK[:-2]],
        [token("a"), LEAK.replace(b"\n", b"\r"), DONE],
    ],
)  # fmt: skip
def test_parameters_in_any_layout_stay_inside(layout):
    (reply,), scrubbed = ask([streamed(*layout)])
    assert SECRET not in reply.body
    assert scrubbed == 1
    assert texts(reply).endswith("b")


def test_no_parameters_in_two_chunks_are_no_fault():
    at = NO_PARAMS.index(b"null}") + 2
    (reply,), scrubbed = ask([streamed(token("a"), NO_PARAMS[:at], NO_PARAMS[at:], DONE)])
    assert (texts(reply), reply.events[-1], scrubbed) == ("ab", "[DONE]", 0)


COMPACT, SPACED = event(USAGE), event(USAGE, indent=None)


@pytest.mark.parametrize(
    "layout",
    [
        [COMPACT, DONE], [COMPACT + DONE], [SPACED, DONE], [COMPACT.replace(b"\n", b"\r\n"), DONE],
        [COMPACT.replace(b"data: ", b"data:"), DONE], [COMPACT[:20], COMPACT[20:], DONE],
        [SPACED.replace(b'"usage":', b'"usage" :'), DONE], [COMPACT[:20], COMPACT[20:] + DONE],
        [token("c") + COMPACT + DONE],
    ],
)  # fmt: skip
def test_usage_that_nobody_asked_for_goes_in_any_layout(layout):
    (reply,), _ = ask([streamed(token("a"), token("b", "length"), *layout)])
    assert all(e == "[DONE]" or e["choices"] for e in reply.events)
    assert reply.events[-1] == "[DONE]"
    assert texts(reply) == "ab" + "c" * (b'"c"' in layout[0])


def test_usage_that_was_asked_for_stays():
    body = {"model": "m", "prompt": "hi", "stream": True, "stream_options": {"include_usage": True}}
    (reply,), _ = ask([streamed(token("a"), token("b", "length"), COMPACT[:20], COMPACT[20:] + DONE)], body)
    assert reply.events[-2:] == [USAGE, "[DONE]"]
    (reply,), _ = ask([streamed(token("a"), token("b", "length"), SPACED)], body)
    assert reply.events[-1] == USAGE


# --- failures ---


@pytest.mark.parametrize(
    "failure", [FAILED, token("b", "abort"), event({"type": "response.failed"}), event({"type": "error"})]
)
def test_failures_in_two_chunks_are_seen(failure):
    replies, _ = ask(
        [
            *[streamed(token("a"), failure[:at], failure[at:], DONE) for at in range(1, len(failure), 3)],
            streamed(token("a"), failure.replace(b"\n", b"\r\n"), DONE),
            streamed(token("a"), failure.replace(b"data: ", b"data:"), DONE),
        ],
        health={"eject_after": 1000, "open_s": 0.1},
    )
    for reply in replies:
        assert reply.events[0]["choices"][0]["text"] == "a"
        assert "aborted" in reply.events[-1]["error"]["message"]
        assert b"[DONE]" not in reply.body


def test_tokens_before_a_failure_in_one_chunk_arrive():
    (reply,), _ = ask([streamed(token("a"), token("b") + FAILED + DONE)])
    assert (texts(reply), reply.events[-1]["error"]["code"]) == ("ab", 502)


@pytest.mark.parametrize(
    "answer",
    [
        streamed(DONE), streamed(event({"id": "d", "choices": []}), DONE), streamed(COMPACT, DONE), streamed(),
        streamed(b": ping\n\n", DONE), streamed(FAILED[:20], FAILED[20:], DONE), streamed(b": ping\n\n", FAILED),
        [CHUNKED + chunk(token("a")) + LAST_CHUNK], streamed(b"data: nonsense\n\n", DONE),
        [HEAD + b"content-length: 0\r\n\r\n"],
    ],
)  # fmt: skip
def test_a_stream_that_says_nothing_is_tried_again(answer):
    async def go():
        engine = Spoken("d0", tokens=2)
        async with Stack(prefills=[], decodes=[engine], table={"retries": 1}).up() as s:
            engine.answers.append(answer)
            reply = await s.ask({"model": "m", "prompt": "hi", "max_tokens": 2, "stream": True})
            assert (reply.status, texts(reply)) == (200, "t0 t1 ")
            assert len(engine.seen) == 2

    run(go())


def test_a_stream_that_stops_without_an_end_is_broken():
    (reply, good), _ = ask([streamed(token("a"), token("b")), streamed(token("a"), token("b", "stop"))])
    assert SAID in reply.events[-1]["error"]["message"]
    assert texts(good) == "ab"
    assert "choices" in good.events[-1]


@pytest.mark.parametrize(
    "said",
    [
        b"{}", {"id": "x"}, b'{"id":"x","choices":[{"index":0,"text":"ab', {"choices": None}, {"choices": []}, b"[]", b"",
        {"object": "response", "status": "failed", "output": []},
        {"object": "response", "status": "cancelled", "output": []},
        {"type": "message", "content": [], "stop_reason": "error"},
    ],
)  # fmt: skip
def test_a_whole_answer_that_is_none_fails(said):
    (reply,), _ = ask([whole(said)], {"model": "m", "prompt": "hi"})
    assert reply.status == 502


@pytest.mark.parametrize(
    "said",
    [
        {"choices": [{"text": "x"}]}, {"object": "response", "status": "incomplete", "output": []},
        {"type": "message", "content": [], "stop_reason": "end_turn"},
        b' \r\n{"choices":[{"text":"an \\"error\\""}]}\n', {"choices": [{"text": "x"}], "error": None},
    ],
)  # fmt: skip
def test_a_whole_answer_that_is_one_passes(said):
    (reply,), _ = ask([whole(said)], {"model": "m", "prompt": "hi"})
    assert reply.status == 200
    assert reply.json == (json.loads(said) if isinstance(said, bytes) else said)


# --- framing ---

BODY = token("a") + token("b", "length") + DONE


@pytest.mark.parametrize(
    "answer",
    [
        [HEAD + b"\r\n" + BODY, CLOSE], [HEAD.replace(b"/1.1", b"/1.0") + b"\r\n" + BODY, CLOSE],
        [HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY],
        [HEAD + b"content-length: %d\r\n\r\n" % len(BODY), *[BODY[i : i + 7] for i in range(0, len(BODY), 7)]],
        [CHUNKED.replace(b"text/event-stream", b"Text/Event-Stream; Charset=UTF-8"), chunk(BODY), LAST_CHUNK],
        [HEAD + b"\r\n", BODY[:30], BODY[30:-1], CLOSE],
        streamed(*[b"event: x\n" + part for part in (token("a"), token("b", "length"), DONE)]),
        [CHUNKED, *[chunk(BODY[i : i + 1]) for i in range(len(BODY))], LAST_CHUNK],
    ],
)  # fmt: skip
def test_streams_in_any_framing_are_streams(answer):
    (reply,), _ = ask([answer], timeouts={"gap_s": 5.0})
    assert (reply.status, texts(reply), reply.events[-1]) == (200, "ab", "[DONE]")
    assert reply.headers["transfer-encoding"] == "chunked"


@pytest.mark.parametrize(
    "head", [b"\r\n", b"content-length: 999\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n"]
)
def test_a_stream_that_breaks_off_says_so(head):
    first = chunk(token("a")) if b"chunked" in head else token("a")
    (reply,), _ = ask([[HEAD + head, first, CLOSE]])
    assert texts(reply) == "a"
    assert reply.events[-1]["error"]["code"] == 502


STRAY = whole({"choices": [{"index": 0, "text": "stray", "finish_reason": "length"}]})
ONE = {"choices": [{"index": 0, "text": "ab", "finish_reason": "length"}]}


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_what_an_engine_says_beyond_its_answer_is_dropped_with_the_connection(stream, apart):
    framings = [
        streamed(BODY), [HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY]
    ] if stream else [whole(ONE)]  # fmt: skip
    pieces = [[b"".join(framing)] for framing in framings]
    answers = [one + STRAY if apart else [one[0] + STRAY[0]] for one in pieces]
    replies, _ = ask(answers, {"model": "m", "prompt": "hi", "max_tokens": 4, "stream": stream})
    for reply in replies:
        assert reply.status == 200
        assert b"stray" not in reply.body
        assert (texts(reply) if stream else reply.json["choices"][0]["text"]) == "ab"


# --- laws ---

pieces = st.lists(
    st.sampled_from([b": ping\n\n", token("x"), DONE, b"event: e\ndata: {}\n\n", LEAK]), max_size=6
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@given(pieces, ends, st.lists(st.integers(1, 40), max_size=20), st.booleans())
def test_any_cut_of_any_layout_gives_the_same_whole_events(parts, end, sizes, chunked):
    body = b"".join(parts)
    raw, wire, at = body.replace(b"\n", end), [], 0
    for size in [*sizes, len(raw)]:
        if raw[at : at + size]:
            wire.append(raw[at : at + size])
        at += size
    borders = EventBorders() if chunked else UnchunkedBorders(len(raw))
    out = b""
    for piece in [*map(chunk, wire), LAST_CHUNK] if chunked else wire or [b""]:
        given = dechunk(borders.feed(piece))
        assert not given or given.endswith(b"\n\n")
        out += given
    assert borders.ended
    assert b"".join(split_events(out)) == body


def test_chunks_of_whole_events_pass_as_they_are():
    data = chunk(token("a")) + chunk(b"event: x\n" + token("b")) + chunk(DONE)
    assert EventBorders().feed(data) is data


@pytest.mark.parametrize("chunked", [True, False])
def test_an_event_without_an_end_is_refused(chunked):
    borders, piece = EventBorders() if chunked else UnchunkedBorders(None), b"x" * (1 << 20)
    piece = chunk(piece) if chunked else piece
    for _ in range(MAX_EVENT >> 20):
        assert borders.feed(piece) == b""
    with pytest.raises(BadAnswerError):
        borders.feed(piece)


def test_named_events_without_a_space_are_events():
    parts = [b"event: x\n" + part.replace(b"data: ", b"data:") for part in (token("a"), token("b", "length"))]
    (reply,), _ = ask([streamed(*parts, DONE)])
    assert reply.status == 200
    assert [event.count(b'"text"') for event in split_events(reply.body)] == [1, 1, 0]


def test_a_byte_order_mark_hides_no_event():
    assert split_events(b"\xef\xbb\xbf" + LEAK) == [LEAK]
    (reply,), scrubbed = ask([streamed(b"\xef\xbb\xbf" + LEAK, DONE)])
    assert SECRET not in reply.body
    assert (reply.status, scrubbed) == (200, 1)
