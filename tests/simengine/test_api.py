"""What clients see: streams, choices, stops, tools, limits and errors, and that the same prompt has one answer."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from disaggc.simengine import frontend
from disaggc.simengine.asks import read_ask
from disaggc.simengine.faults import Fault
from disaggc.simengine.fields import wrong_field
from disaggc.simengine.options import read_options
from disaggc.simengine.refusal import RefusedError
from disaggc.simengine.sundries import SMALL
from disaggc.simengine.tokens import WORD_IDS, WORDS, detokenize, tokenize
from tests.proxy.harness import request
from tests.simengine.doubles import Double, ids, run, up

CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "hello there"}],
    "max_tokens": 6,
    "temperature": 0,
}


def one(*flags, ask):
    async def go():
        async with up(Double(*flags)) as (double,):
            return await ask(double)

    return run(go())


@pytest.mark.parametrize("text", ["", "a", "abcd", "abcde", "grüße 🚀 end", "x" * 4097])
def test_text_comes_back_from_its_tokens(text):
    assert detokenize(tokenize(text)) == text
    assert len(tokenize(text)) == -(-len(text.encode()) // 4)


def test_generated_words_are_the_tokens_of_their_text():
    assert len(set(WORDS)) == len(WORDS) == 4096
    assert list(tokenize("".join(w.decode() for w in WORDS))) == list(WORD_IDS)


@pytest.mark.parametrize("interval", [1, 3])
def test_a_stream_says_the_same_as_a_whole_answer(interval):
    async def ask(double):
        whole = await double.post("/v1/chat/completions", CHAT)
        stream = await double.post(
            "/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
        )
        return whole.json, stream

    whole, stream = one("--stream-interval", str(interval), ask=ask)
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, usage, done = stream.events
    assert done == "[DONE]"
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (
        "".join(e["choices"][0]["delta"].get("content", "") for e in events)
        == whole["choices"][0]["message"]["content"]
    )
    assert [e["choices"][0]["finish_reason"] for e in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    assert usage["usage"]["completion_tokens"] == 6
    assert len(events) == 1 + (
        6 if interval == 1 else 3
    )  # the first word alone, then by interval, the rest at the end
    assert {e["object"] for e in events} == {"chat.completion.chunk"}


def test_the_answer_depends_on_every_token_of_the_prompt_and_on_nothing_else():
    async def ask(double):
        prompt = list(range(300))
        first = ids(await double.complete(prompt))
        again = await asyncio.gather(*(double.complete(prompt) for _ in range(5)))
        changed = [
            ids(await double.complete([*prompt[:at], 9999, *prompt[at + 1 :]])) for at in (0, 150, 299)
        ]
        return first, [ids(a) for a in again], changed, ids(await double.complete(prompt, 20))

    first, again, changed, longer = one(ask=ask)
    assert all(a == first for a in again)
    assert all(c != first for c in changed)
    assert longer[:8] == first


def test_choices_and_batches():
    async def ask(double):
        greedy = await double.complete("hello", 4, n=3)
        sampled = await double.complete("hello", 4, n=3, temperature=1.0)
        batch = await double.complete(["hello", "world"], 4)
        stream = await double.complete("hello", 4, n=2, stream=True, stream_options={"include_usage": True})
        return greedy.json, sampled.json, batch.json, stream.events

    greedy, sampled, batch, events = one(ask=ask)
    assert len({c["text"] for c in greedy["choices"]}) == 1
    assert len({c["text"] for c in sampled["choices"]}) == 3
    assert [c["index"] for c in sampled["choices"]] == [0, 1, 2]
    assert sampled["usage"]["completion_tokens"] == 12
    assert sampled["usage"]["prompt_tokens"] == 2
    assert batch["choices"][0]["text"] != batch["choices"][1]["text"]
    assert batch["usage"]["prompt_tokens"] == 4
    texts = {0: "", 1: ""}
    for event in events[:-2]:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert set(texts.values()) == {greedy["choices"][0]["text"]}
    assert events[-2]["usage"]["completion_tokens"] == 8


BATCH = {**CHAT, "messages": [CHAT["messages"], [{"role": "user", "content": "somebody else's"}]]}


def test_a_batch_answers_every_conversation_as_if_it_were_alone():
    async def ask(double):
        alone = [
            (await double.post("/v1/chat/completions", {**CHAT, "messages": m})).json
            for m in BATCH["messages"]
        ]
        batch = {**BATCH, "stream": True, "return_token_ids": True}
        return alone, (await double.post("/v1/chat/completions/batch", batch)).json

    alone, batch = one(ask=ask)
    assert batch["object"] == "chat.completion"
    assert [c["index"] for c in batch["choices"]] == [0, 1]
    assert [c["message"] for c in batch["choices"]] == [a["choices"][0]["message"] for a in alone]
    assert [len(c["token_ids"]) for c in batch["choices"]] == [6, 6]
    assert batch["prompt_token_ids"] is None
    for figure in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert batch["usage"][figure] == sum(a["usage"][figure] for a in alone)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"messages": CHAT["messages"]}, "messages: Input should be a list of conversations"),
        ({"messages": [[]]}, "messages: Input should be a list of conversations"),
        ({"messages": None}, "messages: Field required"),
        ({"n": 2}, "do not support `n > 1`"),
        ({"use_beam_search": True}, "do not support beam search"),
        ({"tool_choice": "auto"}, "do not support tools"),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "prompt_token_ids"),
    ],
)
def test_what_a_batch_cannot_have(change, words):
    async def ask(double):
        return await double.post("/v1/chat/completions/batch", {**BATCH, **change})

    reply = one(ask=ask)
    assert reply.status == 400
    assert words in reply.json["error"]["message"]


def test_stops_cut_the_text_and_say_why():
    async def ask(double):
        full = (await double.complete("hello", 12)).json["choices"][0]
        stop = full["text"][18:24]  # over the border of two words
        cut = (await double.complete("hello", 12, stop=[stop])).json["choices"][0]
        events = (await double.complete("hello", 12, stop=stop, stream=True)).events[:-1]
        by_id = (await double.complete("hello", 12, stop_token_ids=[full["token_ids"][5]])).json["choices"][0]
        ended = (await double.complete("hello", 12, vllm_xargs={"sim_tokens": 5})).json["choices"][0]
        forced = (await double.complete("hello", 12, vllm_xargs={"sim_tokens": 5}, ignore_eos=True)).json[
            "choices"
        ][0]
        return full, stop, cut, events, by_id, ended, forced

    full, stop, cut, events, by_id, ended, forced = one(ask=ask)
    assert cut["text"] == full["text"][:18]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)
    assert "".join(e["choices"][0]["text"] for e in events) == full["text"][:18]
    assert (by_id["finish_reason"], by_id["stop_reason"], len(by_id["token_ids"])) == (
        "stop",
        full["token_ids"][5],
        6,
    )
    assert (ended["finish_reason"], len(ended["token_ids"])) == ("stop", 5)
    assert (forced["finish_reason"], len(forced["token_ids"])) == ("length", 12)


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_and_tools(stream):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]

    async def ask(double):
        old = await double.complete("hello", 3, logprobs=2, stream=stream)
        new = await double.post(
            "/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 2, "stream": stream}
        )
        tool = await double.post(
            "/v1/chat/completions", {**CHAT, "tools": tools, "tool_choice": "required", "stream": stream}
        )
        return old, new, tool

    old, new, tool = one(ask=ask)
    if not stream:
        assert len(old.json["choices"][0]["logprobs"]["tokens"]) == 3
        assert len(new.json["choices"][0]["logprobs"]["content"]) == 6
        assert len(new.json["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
        choice = tool.json["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "look"
    else:
        assert sum(len(e["choices"][0]["logprobs"]["tokens"]) for e in old.events[:-1]) == 3
        assert sum(len(e["choices"][0]["logprobs"]["content"]) for e in new.events[1:-1]) == 6
        assert tool.events[-2]["choices"][0]["finish_reason"] == "tool_calls"
        assert tool.events[-2]["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] == "look"


def test_responses_and_messages():
    async def ask(double):
        said = {"model": "m", "input": "hello", "max_output_tokens": 4}
        asked = {"model": "m", "messages": CHAT["messages"], "max_tokens": 4}
        return [
            await double.post(path, {**body, "stream": stream})
            for path, body in (("/v1/responses", said), ("/v1/messages", asked))
            for stream in (False, True)
        ]

    response, response_stream, message, message_stream = one(ask=ask)
    text = response.json["output"][0]["content"][0]["text"]
    assert response.json["usage"]["output_tokens"] == 4
    assert "".join(e["delta"] for e in response_stream.events[:-1] if e["type"].endswith("delta")) == text
    assert response_stream.events[-2]["response"]["output"][0]["content"][0]["text"] == text
    text = message.json["content"][0]["text"]
    assert message.json["stop_reason"] == "max_tokens"
    kinds = [e["type"] for e in message_stream.events]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert (
        "".join(e["delta"]["text"] for e in message_stream.events if e["type"] == "content_block_delta")
        == text
    )


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"max_tokens": 0}, 400, "max_tokens must be at least 1"),
        ({"max_tokens": 1, "min_tokens": 5}, 400, "min_tokens must be less than or equal to max_tokens=1"),
        ({"stream_options": {"include_usage": True}}, 400, "Stream options can only be defined"),
        ({"n": 0}, 400, "n must be at least 1"),
        ({"prompt": [1] * 2048}, 400, "maximum context length is 2048 tokens"),
        ({"prompt": [1] * 2000, "max_tokens": 100}, 400, "too large"),
        ({"prompt": ""}, 400, "cannot be empty"),
        ({"prompt": {"a": 1}}, 400, "prompt"),
        ({"temperature": -1}, 400, "temperature"),
        ({"model": "other"}, 404, "The model `other` does not exist."),
        ({"stop": 5}, 400, "stop: Input should be a valid string or a list of strings"),
        ({"stop": ["", "x"]}, 400, "stop cannot contain an empty string"),
        ({"stop_token_ids": 7}, 400, "stop_token_ids: Input should be a list of integers"),
        ({"stream": True, "stream_options": "x"}, 400, "stream_options: Input should be a valid dictionary"),
        ({"tools": 5}, 400, "tools: Input should be a list of dictionaries"),
        ({"n": 16385}, 400, "n must be at most 16384"),
        ({"temperature": "warm"}, 400, "temperature: Input should be a valid number"),
        ({"vllm_xargs": {"sim_tokens": "many"}}, 400, "vllm_xargs.sim_tokens"),
        ({"prompt": [-1]}, 400, "out of vocabulary"),
    ],
)
def test_what_is_refused(change, status, words):
    async def ask(double):
        return await double.post("/v1/completions", {"model": "m", "prompt": "hello", **change})

    reply = one(ask=ask)
    assert reply.status == status
    assert reply.json["error"]["code"] == status
    assert words in reply.json["error"]["message"]


def test_bodies_that_are_no_requests():
    async def ask(double):
        garbage = [await double.post("/v1/completions", body) for body in (b"", b"[1]", b"{", b"[" * 100000)]
        return garbage, await double.get("/nothing"), await double.raw(b"SPDY/9\r\n\r\n")

    garbage, nothing, broken = one(ask=ask)
    assert [g.status for g in garbage] == [400] * 4
    assert nothing.status == 404
    assert broken.status == 400


JUNK = [5, -1, 1.5, float("nan"), float("inf"), 1 << 80, True, "", "x", "\ud800", [], [5], ["x"], [None], [[]], [{}], {}, {"x": 1},
        {"include_usage": 3}, {"sim_tokens": []}, {"function": 1}, {"type": "function", "function": {"name": 3}}]  # fmt: skip
FIELDS = ("model", "prompt", "messages", "input", "instructions", "system", "max_tokens", "max_completion_tokens", "min_tokens",
          "n", "stream", "stream_options", "stop", "stop_sequences", "stop_token_ids", "temperature", "top_p", "logprobs",
          "top_logprobs", "echo", "tools", "tool_choice", "vllm_xargs", "kv_transfer_params", "seed", "ignore_eos", "tokens")  # fmt: skip
GOOD = {
    "completions": {"prompt": "x"},
    "chat": {"messages": CHAT["messages"]},
    "responses": {"input": "x"},
    "messages": {"messages": CHAT["messages"], "max_tokens": 4},
    "batch": {"messages": [CHAT["messages"]]},
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_any_type_is_answered_or_refused_and_nothing_else(field):
    options = read_options(["serve", "tiny", "--served-model-name", "m", "--max-model-len", "64"], {})
    for junk in JUNK:
        for api, good in GOOD.items():
            with contextlib.suppress(RefusedError):
                read_ask(api, {"model": "m", **good, "tool_choice": "required", field: junk}, options)
        for path, small in SMALL.items():
            good = {"/tokenize": {"prompt": "x"}, "/detokenize": {"tokens": [1]}}.get(path, {"input": "x"})
            with contextlib.suppress(RefusedError):
                assert small({"model": "m", **good, field: junk}, options)


def test_wrong_types_are_said_in_json_and_the_double_goes_on():
    async def ask(double):
        wrong = await double.post("/v1/embeddings", {"model": "m", "input": 5})
        return wrong, await double.post("/v1/embeddings", {"model": "m", "input": [[1, 2], [3]]})

    wrong, right = one(ask=ask)
    assert (wrong.status, wrong.json["error"]["param"]) == (400, "input")
    assert right.json["usage"]["prompt_tokens"] == 3


def test_a_bug_of_the_double_is_no_fault_of_the_client(monkeypatch):
    def broken(*_):
        raise TypeError("a bug")

    monkeypatch.setattr(frontend, "read_ask", broken)

    async def ask(double):
        return await double.post("/v1/completions", {"model": "m", "prompt": "x"})

    reply = one(ask=ask)
    assert (reply.status, reply.json["error"]["type"]) == (500, "InternalServerError")


def test_a_key_guards_the_api_and_nothing_else():
    async def ask(double):
        return (
            (await double.complete("x")).status,
            (
                await double.post(
                    "/v1/completions", {"model": "m", "prompt": "x"}, authorization="Bearer wrong"
                )
            ).status,
            (
                await double.post(
                    "/v1/completions", {"model": "m", "prompt": "x"}, authorization="Bearer secret"
                )
            ).status,
            (await double.get("/health")).status,
            (await double.get("/metrics")).status,
        )

    assert one("--api-key", "secret", ask=ask) == (401, 401, 200, 200, 200)


def test_the_small_endpoints():
    async def ask(double):
        text = (await double.post("/detokenize", {"model": "m", "tokens": list(tokenize("hello"))})).json[
            "prompt"
        ]
        count = (await double.post("/tokenize", {"model": "m", "messages": CHAT["messages"]})).json["count"]
        used = (await double.post("/v1/chat/completions", CHAT)).json["usage"]["prompt_tokens"]
        models = (await double.get("/v1/models")).json["data"][0]
        vector = (await double.post("/v1/embeddings", {"model": "m", "input": ["a", "b"]})).json["data"]
        return (
            text,
            count,
            used,
            models,
            vector,
            (await double.get("/version")).json,
            (await double.get("/load")).json,
        )

    text, count, used, models, vector, version, load = one(ask=ask)
    assert text == "hello"
    assert count == used
    assert (models["id"], models["root"], models["max_model_len"]) == ("m", "tiny", 2048)
    assert vector[0]["embedding"] != vector[1]["embedding"]
    assert version == {"version": "0.33.0"}
    assert load == {"server_load": 0}


SMALL_BODIES = {
    "/v2/embed": {"texts": ["a", "b"]},
    "/score": {"queries": "a", "documents": ["b", "c"]},
    "/v1/score": {"text_1": ["a", "b"], "text_2": ["b", "c"]},
    "/rerank": {"query": "a", "documents": ["b", "c", "d"]},
    "/v1/rerank": {"query": "a", "documents": ["b", "c", "d"], "top_n": 1},
    "/v2/rerank": {"query": "a", "documents": ["b", "c", "d"], "top_n": 2},
    "/classify": {"input": ["a", "b"]},
    "/pooling": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/messages/count_tokens": {"model": "m", "messages": [{"role": "user", "content": "a"}]},
}


def test_what_the_proxy_passes_on_is_answered_in_vllms_form():
    """Fields as in vLLM's entrypoints/pooling/*/protocol.py and entrypoints/anthropic/protocol.py."""

    async def ask(double):
        return {path: await double.post(path, body) for path, body in SMALL_BODIES.items()}

    found = one(ask=ask)
    assert {path: reply.status for path, reply in found.items()} == dict.fromkeys(SMALL_BODIES, 200)
    assert len(found["/v2/embed"].json["embeddings"]["float"]) == 2
    assert found["/v2/embed"].json["response_type"] == "embeddings_by_type"
    for path in ("/score", "/v1/score"):
        rows = found[path].json["data"]
        assert [set(row) for row in rows] == [{"index", "object", "score"}] * 2
        assert all(0 <= row["score"] <= 1 for row in rows)
    everyone = found["/rerank"].json["results"]
    assert sorted(row["index"] for row in everyone) == [0, 1, 2]
    scores = [row["relevance_score"] for row in everyone]
    assert scores == sorted(scores, reverse=True)
    assert everyone[0]["document"] == {"text": "bcd"[everyone[0]["index"]], "multi_modal": None}
    assert found["/v1/rerank"].json["results"] == everyone[:1]
    assert found["/v2/rerank"].json["results"] == everyone[:2]
    assert set(everyone[0]) == {"index", "document", "relevance_score"}
    assert set(found["/rerank"].json["usage"]) == {"prompt_tokens", "total_tokens"}
    for row in found["/classify"].json["data"]:
        assert sum(row["probs"]) == pytest.approx(1)
        assert len(row["probs"]) == row["num_classes"] == 2
    assert len(found["/pooling"].json["data"][0]["data"]) == 16


def test_a_message_is_counted_as_it_is_when_it_is_answered():
    async def ask(double):
        body = {"model": "m", "messages": CHAT["messages"], "system": "be brief"}
        counted = await double.post("/v1/messages/count_tokens", body)
        answered = await double.post("/v1/messages", {**body, "max_tokens": 2})
        return counted.json, answered.json["usage"]["input_tokens"]

    counted, used = one(ask=ask)
    assert counted == {"input_tokens": used, "context_management": {"original_input_tokens": used}}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/score", {"queries": "a"}, "queries: Field required"),
        ("/score", {"queries": ["a", "b"], "items": ["a", "b", "c"]}, "1:1, 1:N or N:N"),
        ("/score", {"queries": 5, "items": "a"}, "queries: Input should be"),
        ("/rerank", {"query": "a"}, "documents: Field required"),
        ("/rerank", {"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
        ("/v2/embed", {"texts": ["a"], "images": ["b"]}, "Exactly one"),
        ("/classify", {"input": {"a": 1}}, "input: Input should be"),
        ("/v1/messages/count_tokens", {"model": "m"}, "messages: Field required"),
    ],
)
def test_what_pooling_refuses(path, body, words):
    async def ask(double):
        return await double.post(path, body)

    reply = one(ask=ask)
    assert reply.status == 400
    assert words in reply.json["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "look"}])
def test_a_message_that_must_use_a_tool_does(choice, stream):
    body = {
        "model": "m", "messages": CHAT["messages"], "max_tokens": 4, "stream": stream, "tool_choice": choice,
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    }  # fmt: skip

    async def ask(double):
        free = {**body, "tool_choice": {"type": "auto"}, "stream": False}
        return await double.post("/v1/messages", body), await double.post("/v1/messages", free)

    reply, free = one(ask=ask)
    assert (free.json["content"][0]["type"], free.json["stop_reason"]) == ("text", "max_tokens")
    if not stream:
        (block,) = reply.json["content"]
        assert (block["type"], block["name"], reply.json["stop_reason"]) == ("tool_use", "look", "tool_use")
        assert set(block["input"]) == {"text"}
        return
    kinds = [event["type"] for event in reply.events]
    assert kinds == [
        "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    assert reply.events[1]["content_block"]["name"] == "look"
    assert reply.events[2]["delta"]["type"] == "input_json_delta"
    assert set(json.loads(reply.events[2]["delta"]["partial_json"])) == {"text"}
    assert reply.events[4]["delta"]["stop_reason"] == "tool_use"


def test_a_message_that_fails_says_so_in_the_words_of_its_api():
    """As vLLM's entrypoints/anthropic/serving.py: `event: error` ends a stream, without a mark of the end."""

    async def ask(double):
        double.engine.faults.switch_on(Fault(kind="status", when="mid", after_tokens=2))
        body = {"model": "m", "messages": CHAT["messages"], "max_tokens": 8, "stream": True}
        return await double.post("/v1/messages", body)

    reply = one(ask=ask)
    assert reply.body.endswith(b"\n\n")
    name, data = reply.body.rstrip(b"\n").rsplit(b"\n\n", 1)[1].split(b"\n")
    assert name == b"event: error"
    assert json.loads(data.removeprefix(b"data: ")) == {
        "type": "error", "error": {"type": "internal_error", "message": "Internal server error"},
    }  # fmt: skip


def test_a_message_that_is_refused_is_so_in_the_words_of_its_api():
    async def ask(double):
        return await double.post(
            "/v1/messages", {"model": "x", "messages": CHAT["messages"], "max_tokens": 4}
        )

    reply = one(ask=ask)
    assert (reply.status, reply.json) == (
        404, {"type": "error", "error": {"type": "NotFoundError", "message": "The model `x` does not exist."}},
    )  # fmt: skip


def test_every_event_is_a_chunk_of_its_own():
    async def go():
        async with up(Double()) as (double,):
            reader, writer = await asyncio.open_connection("127.0.0.1", double.engine.port)
            writer.write(
                request(
                    {**CHAT, "stream": True, "stream_options": {"include_usage": True}},
                    "/v1/chat/completions",
                )
            )
            await reader.readuntil(b"\r\n\r\n")
            chunks = []
            while size := int(await reader.readuntil(b"\r\n"), 16):
                chunks.append((await reader.readexactly(size + 2))[:-2])
            writer.close()
            return chunks

    chunks = run(go())
    assert len(chunks) == 1 + 6 + 1 + 1
    assert all(c.startswith(b"data: ") and c.endswith(b"\n\n") and c.count(b"\n\n") == 1 for c in chunks)


@pytest.mark.parametrize("said", ["true", "On", 1, 1.0, "1"])
def test_a_stream_asked_for_in_other_words_is_a_stream(said):
    async def ask(double):
        body = {
            "model": "m",
            "prompt": "hello",
            "max_tokens": "3",
            "n": 1.0,
            "temperature": "0",
            "stop_token_ids": ["5"],
        }
        return await double.post("/v1/completions", {**body, "stream": said})

    reply = one(ask=ask)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert len([e for e in reply.events if e != "[DONE]" and e["choices"][0]["text"]]) == 3


@pytest.mark.parametrize(
    ("field", "said", "read"),
    [
        ("stream", "off", False), ("stream", 0, False), ("stream", "TRUE", True), ("stream", 2, None), ("stream", " true", None),
        ("stream", [], None), ("n", "2", 2), ("n", 2.0, 2), ("n", 2.5, None), ("n", True, 1), ("max_tokens", " 1_0 ", 10),
        ("max_tokens", "5.", None), ("echo", "y", True), ("temperature", "0.5", 0.5), ("top_p", "0.5", 0.5), ("top_p", "2", None),
        ("top_logprobs", "1", None), ("top_logprobs", 1.0, 1), ("model", 5, None),
    ],
)  # fmt: skip
def test_fields_are_read_as_vllm_reads_them(field, said, read):
    body = {field: said}
    wrong = wrong_field("chat", body)
    assert (wrong is None) == (read is not None)
    if wrong is None:
        assert body == {field: read}
        assert type(body[field]) is type(read)


@pytest.mark.parametrize(
    ("options", "status", "usage"),
    [({}, 200, True), ({"include_usage": None}, 200, False), ({"include_usage": "no"}, 200, False),
     ({"include_usage": 1}, 200, True), (None, 200, False), ([], 400, False)],
)  # fmt: skip
def test_usage_in_a_stream_is_what_its_options_say(options, status, usage):
    async def ask(double):
        body = {"model": "m", "prompt": "hello", "max_tokens": 2, "stream": True, "stream_options": options}
        return await double.post("/v1/completions", body)

    reply = one(ask=ask)
    assert reply.status == status
    if status == 200:
        assert any(e != "[DONE]" and e.get("usage") for e in reply.events) is usage
