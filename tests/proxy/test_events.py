import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.proxy.engine_json import Usage
from disaggc.proxy.events import (
    events_of,
    is_complete,
    is_failure,
    is_last,
    may_have_failed,
    notable_in,
    scrub,
    usage_apart,
    usage_of,
)
from disaggc.proxy.framing import LAST_CHUNK, chunk
from disaggc.proxy.verdicts import handed_over
from disaggc.routing.table import Dialect

inner = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(), x, max_size=3),
    max_leaves=8,
)


@given(inner, st.text(), st.sampled_from([{}, {"separators": (",", ":")}, {"indent": 1}]))
def test_scrub_blanks_parameters_and_nothing_else(params, text, style):
    said = {"text": text, "kv_transfer_params": params, "after": [1, text]}
    data = json.dumps(said, **style).encode()
    clean, count = scrub(data)
    assert len(clean) == len(data)
    result = json.loads(clean)
    assert (result["text"], result["after"]) == (text, [1, text])
    short = len(json.dumps(params, **style)) < 4
    assert result["kv_transfer_params"] is None or short
    assert count == (params is not None and not short)


@given(st.text())
def test_generated_text_never_looks_like_structure(text):
    for evil in (
        text,
        '"error"',
        '"kv_transfer_params": {"a":1}',
        '"usage":{"prompt_tokens":7}',
        '"choices":[]',
    ):
        data = json.dumps({"choices": [{"text": evil}]}, separators=(",", ":")).encode()
        assert scrub(data) == (data, 0)
        assert usage_of(data) is None
        assert not may_have_failed(notable_in(data)) or not is_failure(json.loads(data))


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ({"error": {"message": "x"}}, True), ({"choices": [{"finish_reason": "error"}]}, True),
        ({"choices": [{"finish_reason": "abort"}]}, True), ({"choices": [{"finish_reason": "stop"}]}, False),
        ({"type": "response.failed"}, True), ({"status": "failed"}, True), ({"status": "completed"}, False),
        ({"status": "cancelled"}, True), ({"type": "message", "stop_reason": "error"}, True), ({"type": ["x"]}, False),
        ({"type": "response.completed", "response": {"status": "cancelled"}}, True),
        ({"type": "message_delta", "delta": {"stop_reason": "abort"}}, True),
        ({"error": None, "choices": [{"finish_reason": None, "text": "error"}]}, False),
    ],
)  # fmt: skip
def test_failures(said, failed):
    assert is_failure(said) is failed
    if failed:
        assert may_have_failed(notable_in(json.dumps(said).encode()))


def test_usage_of_every_api():
    assert usage_of(
        b'{"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}}'
    ) == Usage(3, 4, 2)
    assert usage_of(b'{"usage":{"input_tokens":3,"output_tokens":4}}') == Usage(3, 4, 0)
    assert usage_of(b'{"usage":null}') is None


def test_events_of_any_layout():
    token, final = b'data: {"choices":[{"text":"a"}]}\n\n', b'data:{"choices":[{"text":"b"}]}\r\n\r\n'
    framed = chunk(token + final) + chunk(b": ping\n\ndata: [DONE]\n\n") + LAST_CHUNK
    assert [e["choices"][0]["text"] for e in events_of(framed)] == ["a", "b"]
    assert is_complete(framed)
    assert not is_complete(chunk(b'data: {"choices":[{"text":"[DONE]"}]}\n\n'))


@pytest.mark.parametrize(
    ("said", "last"),
    [
        ({"choices": [{"finish_reason": None}]}, False), ({"choices": [{}, {"finish_reason": "stop"}]}, True),
        ({"choices": []}, False), ({"type": "message_stop"}, True), ({"type": "message_delta"}, False),
        ({"type": "response.completed"}, True), ({"type": "response.incomplete"}, True),
        ({"type": []}, False), ({"type": {}, "choices": [{"finish_reason": "stop"}]}, True),
    ],
)  # fmt: skip
def test_which_event_completes_an_answer(said, last):
    assert is_last(said) is last
    assert is_complete(chunk(b"data: %b\n\n" % json.dumps(said).encode())) is last


TOKEN = b'data: {"id":"a","choices":[{"index":0,"text":"x","finish_reason":null}]}\n\n'
ONLY_USAGE = b'data: {"id":"a","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize("before", [b"", chunk(TOKEN), chunk(TOKEN) * 3, chunk(TOKEN + TOKEN)])
@pytest.mark.parametrize("after", [b"", chunk(DONE)])
def test_usage_in_a_chunk_of_its_own_is_taken_out(before, after):
    assert usage_apart(before + chunk(ONLY_USAGE) + after) == (before + after, Usage(3, 1, 0))


def test_a_count_that_is_null_is_none_of_these():
    said = ONLY_USAGE.replace(b'"completion_tokens":1', b'"completion_tokens":null')
    assert usage_apart(chunk(said)) == (b"", Usage(3, 0, 0))
    prefilled = (
        b'{"choices":[{}],"usage":{"prompt_tokens":3,"completion_tokens":null},"kv_transfer_params":{"a":1}}'
    )
    handed = handed_over(prefilled, Dialect.MORIIO_READ)
    assert (bytes(handed.params), handed.prompt_tokens, handed.cached_tokens) == (b'{"a":1}', 3, None)


@pytest.mark.parametrize(
    "framed",
    [
        b"",
        chunk(TOKEN),
        chunk(ONLY_USAGE + DONE),
        chunk(TOKEN + ONLY_USAGE),
        chunk(b": x\r\n" + ONLY_USAGE),
        chunk(ONLY_USAGE.replace(b"[]", b'[{"index":0,"text":"x"}]')),
        b"2\r\n" + ONLY_USAGE + b"\r\n",
        chunk(ONLY_USAGE.replace(b'"usage":', b'"usage": ')),
    ],
)
def test_usage_elsewhere_is_left_to_who_takes_events_apart(framed):
    assert usage_apart(framed) is None
