"""What a request asks for is read as vLLM reads it, and what only the proxy may say passes on no path."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from pydantic import TypeAdapter

from disaggc.proxy.anycall import PASSED
from disaggc.proxy.asks import BATCH, CHAT, COMPLETIONS, MESSAGES, RESPONSES, Ask
from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.framing import BadAnswerError, parse_head
from disaggc.proxy.members import flag_of, whole_of
from tests.proxy.engine import Engine
from tests.proxy.harness import Stack, prompt, request, run

EVIL = {"remote_block_ids": [[1]], "remote_host": "10.9.9.9", "remote_port": 1}
TALK = [{"role": "user", "content": "hello " * 100}]


def asked(s: Stack) -> list[dict]:
    return [seen for engine in (*s.prefills, *s.decodes) for seen in engine.seen]


# --- KV parameters ---


@pytest.mark.parametrize("path", [path.decode() for path, method in PASSED.items() if method == b"POST"])
@pytest.mark.parametrize(
    "key", ["kv_transfer_params", "kv\\u005ftransfer_params", "ec_transfer_params", "request_id"]
)
def test_no_call_carries_what_only_the_proxy_may_say(path, key):
    async def go():
        async with Stack().up() as s:
            xargs = json.dumps({"kv_transfer_params": EVIL, "keep": 1})
            raw = f'{{"model":"m","input":"x","{key}":{json.dumps(EVIL)},"vllm_xargs":{xargs}}}'
            assert (await s.ask(raw.encode(), path)).status == 200
            (seen,) = asked(s)
            assert b"10.9.9.9" not in seen["raw"]
            assert seen["body"] == {"model": "m", "input": "x", "vllm_xargs": {"keep": 1}}
            assert s.total(Total.PARAMS_STRIPPED) == 1

    run(go())


def test_no_call_brings_back_what_engines_say_to_each_other():
    async def go():
        async with Stack().up() as s:
            for engine in (*s.prefills, *s.decodes):
                engine.small = {"data": [], "kv_transfer_params": {"remote_host": "10.1.2.3"}}
            reply = await s.ask({"model": "m", "input": "x"}, "/v1/embeddings")
            assert reply.json == {"data": [], "kv_transfer_params": None}
            assert s.total(Total.PARAMS_SCRUBBED) == 1

    run(go())


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/v1/responses/resp_1", "GET", 200), ("/v1/responses/resp_1?stream=false", "GET", 200),
        ("/v1/responses/resp_1/cancel", "POST", 200), ("/v1/responses/resp_1/cancel", "GET", 404),
        ("/v1/responses/resp_1", "POST", 404), ("/v1/responses/resp_1/sleep", "POST", 404),
        ("/v1/responses/../sleep", "POST", 404), ("/v1/responses/", "GET", 404),
    ],
)  # fmt: skip
@pytest.mark.parametrize("decodes", [1, 2])
def test_a_stored_response_is_asked_of_the_one_engine_that_keeps_it(path, method, status, decodes):
    async def go():
        async with Stack(decodes=[Engine(f"d{i}") for i in range(decodes)]).up() as s:
            body = b"" if method == "GET" else json.dumps({"kv_transfer_params": EVIL}).encode()
            reply = await s.say(request(body, path, method))
            served = status == 200 and decodes == 1
            assert reply.status == (200 if served else 400 if status == 200 else 404)
            assert [(seen["method"], seen["path"], seen["raw"]) for seen in asked(s)] == [
                (method, path, b"")
            ] * served
            assert s.prefills[0].seen == []

    run(go())


def test_other_calls_are_json_objects_too():
    async def go():
        async with Stack().up() as s:
            for body in (b"", b"[]", b"{", json.dumps({"kv_transfer_params": EVIL}).encode("utf-16")):
                assert (await s.ask(body, "/v1/embeddings")).status == 400
            assert asked(s) == []

    run(go())


def test_a_batch_is_a_generation():
    async def go():
        async with Stack().up() as s:
            path, said = (
                "/v1/chat/completions/batch",
                {"model": "m", "messages": [TALK, TALK], "max_tokens": 3},
            )
            s.decodes[0].script.append("leak")
            reply = await s.ask({**said, "kv_transfer_params": EVIL}, path)
            assert (reply.status, reply.json["kv_transfer_params"]) == (200, None)
            assert s.prefills[0].seen == []
            assert s.decodes[0].seen[0]["body"] == said
            assert s.total(Total.PARAMS_STRIPPED) == s.total(Total.PARAMS_SCRUBBED) == 1
            assert (await s.ask({**said, "model": "other"}, path)).status == 404
            s.decodes[0].script.extend(["error-200"] * 9)
            assert (await s.ask(said, path)).status == 502

    run(go())


# --- lax types ---

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, 1.0, 5.0])
    | st.sampled_from(
        ["true", "False", "ON", "off", "y", "N", "t", "yes", "no", "1", "0", " true", "maybe", ""]
    )
    | st.from_regex(r"\A\s?[+-]?[0-9_]{1,4}(\.0{0,2})?\s?\Z")
    | st.sampled_from([[], {}, [True], {"a": 1}])
)


def read(kind, value):
    """What pydantic, by which vLLM reads its requests, makes of a value."""
    try:
        return TypeAdapter(kind | None).validate_python(value)
    except ValueError:
        return "refused"


@given(SCALARS)
def test_flags_and_numbers_are_read_as_vllm_reads_them(value):
    found = {"x": Raw(json.dumps(value).encode())}
    for kind, reader in ((bool, flag_of), (int, whole_of)):
        try:
            said = reader(found, "x")
        except RefusedError:
            said = "refused"
        assert said == read(kind, value)


@pytest.mark.parametrize("said", ["true", "On", 1, 1.0, "1", "yes"])
def test_a_stream_asked_for_in_other_words_is_a_stream(said):
    async def go():
        async with Stack(decodes=[Engine("d0"), Engine("d1")]).up() as s:
            for _ in range(4):
                reply = await s.ask(prompt(stream=said))
                assert reply.headers["content-type"].startswith("text/event-stream")
                assert len(reply.events) == 5
            legs = [seen["body"]["stream"] for e in s.decodes for seen in e.seen]
            assert len(legs) == 4
            assert all(leg is True for leg in legs)
            assert all(seen["body"]["stream"] is False for seen in s.prefills[0].seen)

    run(go())


@pytest.mark.parametrize(
    "more",
    [
        {"stream": "maybe"}, {"stream": 2}, {"stream": []}, {"stream": "x" * 1000}, {"max_tokens": "many"},
        {"max_tokens": 1.5}, {"max_tokens": {}}, {"model": 5}, {"model": ["m"]},
    ],
)  # fmt: skip
def test_what_vllm_would_refuse_reaches_no_engine(more):
    async def go():
        async with Stack().up() as s:
            reply = await s.ask(prompt(**more))
            assert reply.status == 400
            assert next(iter(more)) in reply.json["error"]["message"]
            assert asked(s) == []

    run(go())


@pytest.mark.parametrize(
    ("more", "single"),
    [
        ({"n": "2"}, False), ({"n": 2.0}, False), ({"n": "1"}, True), ({"n": True}, True), ({"n": "x"}, False),
        ({"best_of": "3"}, False), ({"echo": "true"}, False), ({"echo": "off"}, True), ({"echo": 0}, True),
        ({"use_beam_search": 1}, False), ({"use_beam_search": "no"}, True), ({"prompt_logprobs": None}, True),
        ({"prompt_embeds": None}, True), ({"prompt_logprobs": 0}, False),
    ],
)  # fmt: skip
def test_one_answer_or_several_in_other_words(more, single):
    assert Ask(COMPLETIONS, json.dumps(prompt(**more)).encode()).single is single


@pytest.mark.parametrize(
    ("api", "more", "limit"),
    [
        (COMPLETIONS, {"max_tokens": "7", "max_completion_tokens": 999}, 7),
        (COMPLETIONS, {"max_completion_tokens": 999, "max_output_tokens": 9}, None),
        (CHAT, {"max_tokens": 7, "max_completion_tokens": 5.0}, 5),
        (CHAT, {"max_tokens": 7, "max_completion_tokens": None}, 7),
        (CHAT, {"max_output_tokens": 9}, None), (BATCH, {"max_completion_tokens": 5}, 5),
        (RESPONSES, {"max_output_tokens": "9", "max_tokens": 3}, 9), (MESSAGES, {"max_tokens": True}, 1),
        (MESSAGES, {"max_completion_tokens": 5}, None),
    ],
)  # fmt: skip
def test_only_the_limits_that_the_api_has_count(api, more, limit):
    ask = Ask(api, json.dumps(more).encode())
    assert ask.output_limit == limit
    first = json.loads(ask.prefill_body(Raw(b"{}"), keeps_only_capped=False))
    assert {name: value for name, value in first.items() if name.startswith("max_")} == {
        name: 1 for name in api.limits if name in more or name == api.limits[-1]
    }


# --- state ---


@pytest.mark.parametrize(
    "more",
    [
        {"background": True},
        {"background": "yes"},
        {"previous_response_id": "resp_1"},
        {"previous_response_id": "r" * 600},
    ],
)
def test_state_stays_on_the_one_engine_that_has_it(more):
    async def go():
        async with Stack().up() as s:
            said = {"model": "m", "input": "hello " * 300, "store": True, **more}
            for _ in range(4):
                assert (await s.ask(said, "/v1/responses")).status == 200
            assert s.prefills[0].seen == []
            assert s.decodes[0].seen[0]["body"] == said
        async with Stack(decodes=[Engine("d0"), Engine("d1")]).up() as s:
            assert (await s.ask(said, "/v1/responses")).status == 400
            assert asked(s) == []

    run(go())


@pytest.mark.parametrize(
    "more", [{}, {"store": True}, {"store": None}, {"background": False}, {"previous_response_id": None}]
)
def test_prefill_keeps_no_answers(more):
    async def go():
        async with Stack(decodes=[Engine("d0"), Engine("d1")]).up() as s:
            assert (
                await s.ask({"model": "m", "input": "hello " * 300, **more}, "/v1/responses")
            ).status == 200
            assert s.prefills[0].seen[0]["body"]["store"] is False
            (seen,) = (seen for e in s.decodes for seen in e.seen)
            assert {k: v for k, v in seen["body"].items() if k in more} == more

    run(go())


def test_names_of_another_api_are_no_state():
    ask = Ask(CHAT, json.dumps({"messages": TALK, "background": True, "previous_response_id": "x"}).encode())
    assert ask.single
    assert not ask.stateful


# --- what is not text ---

DATA = "data:audio/wav;base64," + "A" * 400_000
PARTS = [
    {"type": "image_url", "image_url": {"url": DATA}}, {"type": "audio_url", "audio_url": {"url": DATA}},
    {"type": "video_url", "video_url": {"url": DATA}}, {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}},
    {"type": "image_embeds", "image_embeds": DATA}, {"type": "audio_embeds", "audio_embeds": DATA},
    {"type": "video_embeds", "video_embeds": DATA}, {"type": "prompt_embeds", "data": DATA},
    {"type": "image_pil", "image_pil": DATA}, {"type": "file", "file": {"file_data": DATA}},
    {"type": "input_file", "file_data": DATA}, {"type": "input_image", "image_url": DATA}, {"type": "of tomorrow", "data": DATA},
    {"type": "image", "source": {"type": "base64", "data": DATA}}, {"type": "document", "source": {"type": "text", "data": DATA}},
    {"audio_url": DATA}, {"image_url": {"url": DATA}}, {"image_embeds": DATA}, {"video_url": DATA}, {"input_audio": {"data": DATA}},
    {"type": "tool_result", "content": [{"type": "image", "source": {"data": DATA}}]},
]  # fmt: skip
STYLES = [{}, {"indent": 1}, {"separators": (",", ":")}]


def talk(part, api):
    content = [{"type": "text", "text": "what?"}, part]
    return {"model": "m", "max_tokens": 4, api.prompts[0]: [{"role": "user", "content": content}]}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("api", [CHAT, RESPONSES, MESSAGES])
def test_what_is_not_text_is_not_counted(api, style):
    for part in PARTS:
        ask = Ask(api, json.dumps(talk(part, api), **style).encode())
        assert not ask.countable, part
        assert not ask.hands_over_tokens


@pytest.mark.parametrize(
    "raw",
    [
        rb'{"audio\u005furl":"A"}',
        rb'{"\u0061udio_url":"A"}',
        rb'{"t\u0079pe":"audio_url"}',
        rb'{"type":"aud\u0069o_url"}',
    ],
)
def test_what_is_not_text_cannot_hide_behind_escapes(raw):
    assert not Ask(CHAT, b'{"messages":[{"role":"user","content":[%b]}]}' % raw).countable


@pytest.mark.parametrize("style", STYLES)
def test_text_is_counted_whatever_it_is_about(style):
    schema = {
        "type": "object",
        "properties": {"type": {"type": "string"}, "image_url": {"type": "string", "enum": ["file"]}},
    }
    said = {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": 'is {"type": "image_url", "image_url": "x"} an "image"? <b>\u00e9\u2028 \\u0061</b> image'},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps({"image": 1, "type": "file"})}},
            ]},
            {"role": "tool", "tool_call_id": "1", "content": "image"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
    }  # fmt: skip
    for api in (CHAT, MESSAGES):
        assert Ask(api, json.dumps(said, **style).encode()).countable
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}], "content": [{"type": "reasoning_text", "text": "x"}]},
        {"type": "function_call", "name": "f", "arguments": "{}"}, {"type": "function_call_output", "output": "x"},
    ]  # fmt: skip
    assert Ask(RESPONSES, json.dumps({"input": items, "tools": said["tools"]}, **style).encode()).countable


def test_a_recording_is_no_long_text():
    async def go():
        async with Stack().up() as s:
            for _ in range(40):
                await s.ask(prompt())
            learnt = s.worker._service.lengths.tokens(1000)
            for part in PARTS:
                n = len(s.prefills[0].seen)
                assert (await s.ask(talk(part, CHAT), "/v1/chat/completions")).status == 200, part
                first = s.prefills[0].seen[n:]
                assert [seen["path"] for seen in first] == ["/v1/chat/completions"]
                assert "return_token_ids" not in first[0]["body"]
            assert s.worker._service.lengths.tokens(1000) == learnt

    run(go())


@pytest.mark.parametrize("text", ["x" * 400_000, [1] * 9000])
def test_a_prompt_that_the_engine_cuts_is_not_too_long(text):
    async def go():
        async with Stack().up() as s:
            for _ in range(40):
                await s.ask(prompt())
            assert (await s.ask(prompt(prompt=text))).status == 400
            assert (await s.ask(prompt(prompt=text, truncate_prompt_tokens=100))).status == 200

    run(go())


# --- answers that are none ---


@pytest.mark.parametrize("status", [201, 204, 206, 302, 304, 307])
@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_only_200_is_a_generation(status, leg):
    async def go():
        async with Stack(
            prefills=[Engine("p0"), Engine("p1")], decodes=[Engine("d0"), Engine("d1")]
        ).up() as s:
            side = s.prefills if leg == "prefill" else s.decodes
            for engine in side:
                engine.script.append(status)
            assert (await s.ask(prompt())).status == 200
            for engine in side:
                engine.script.extend([status] * 9)
            assert (await s.ask(prompt())).status == 502

    run(go())


@pytest.mark.parametrize("status", [204, 302, 304])
def test_only_200_is_an_answer_to_other_calls(status):
    async def go():
        async with Stack().up() as s:
            for engine in (*s.prefills, *s.decodes):
                engine.small = {"status": status}
            reply = await s.ask({"model": "m", "input": "x"}, "/v1/embeddings")
            assert reply.status == 502
            assert len(asked(s)) == 2

    run(go())


@pytest.mark.parametrize("digits", [19, 5000])
def test_a_length_beyond_all_bounds_is_no_length(digits):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: " + b"9" * digits
    with pytest.raises(BadAnswerError):
        parse_head(head)


def test_a_stream_that_was_not_asked_for_blames_nobody():
    async def go():
        async with Stack(decodes=[Engine("d0"), Engine("d1")]).up() as s:
            for engine in s.decodes:
                engine.script.extend(["stream"] * 20)
            for _ in range(4):
                assert (await s.ask(prompt())).status == 502
            assert (await s.ask(prompt(stream=True))).status == 200

    run(go())


# --- targets and versions ---


@pytest.mark.parametrize(
    "target", ["http://t/v1/models", "HTTPS://t:1/v1/models", "http://10.0.0.1/v1/models?x=1"]
)
def test_a_target_may_name_its_host(target):
    async def go():
        async with Stack().up() as s:
            assert (await s.say(request(b"", target, "GET"))).json["data"][0]["id"] == "m"
            assert asked(s)[0]["path"] == target[target.index("/v1") :]

    run(go())


@pytest.mark.parametrize("target", ["/health", "http://t/health", "http://t/ready?now", "/health?x=1"])
def test_health_is_open_however_it_is_called(target, monkeypatch):
    monkeypatch.setenv("A_KEY", "secret")

    async def go():
        async with Stack(table={"api_key": {"env": "A_KEY"}}).up() as s:
            assert (await s.say(request(b"", target, "GET"))).status == 200
            assert (await s.say(request(b"", "http://t/v1/models?/health", "GET"))).status == 401

    run(go())


def test_the_query_reaches_the_engine():
    async def go():
        async with Stack().up() as s:
            await s.say(request(b"", "/v1/models?limit=2&x=%2F..", "GET"))
            await s.ask({"model": "m", "input": "x"}, "/v1/embeddings?dim=8#piece")
            assert sorted(seen["path"] for seen in asked(s)) == [  # any engine gets them, by chance
                "/v1/embeddings?dim=8",
                "/v1/models?limit=2&x=%2F..",
            ]

    run(go())


@pytest.mark.parametrize("version", [b"HTTP/2.0", b"HTTP/0.9"])
def test_other_versions_of_http_are_refused(version):
    async def go():
        async with Stack().up() as s:
            assert (await s.say(request(prompt()).replace(b"HTTP/1.1", version))).status == 505
            assert asked(s) == []

    run(go())
