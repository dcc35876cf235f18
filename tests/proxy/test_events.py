import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.proxy.events import events_of, is_failure, is_suspect, scrub, usage_of, without_usage_event
from disaggc.proxy.framing import LAST_CHUNK, chunk

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
        assert not is_suspect(data) or not is_failure(json.loads(data))


@pytest.mark.parametrize(
    ("said", "failed"),
    [
        ({"error": {"message": "x"}}, True), ({"choices": [{"finish_reason": "error"}]}, True),
        ({"choices": [{"finish_reason": "abort"}]}, True), ({"choices": [{"finish_reason": "stop"}]}, False),
        ({"type": "response.failed"}, True), ({"status": "failed"}, True), ({"status": "completed"}, False),
        ({"error": None, "choices": [{"finish_reason": None, "text": "error"}]}, False),
    ],
)  # fmt: skip
def test_failures(said, failed):
    assert is_failure(said) is failed
    if failed and said.get("status") != "failed":
        assert is_suspect(json.dumps(said).encode())


def test_usage_of_every_api():
    assert usage_of(
        b'{"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":2}}}'
    ) == (3, 4, 2)
    assert usage_of(b'{"usage":{"input_tokens":3,"output_tokens":4}}') == (3, 4, 0)
    assert usage_of(b'{"usage":null}') is None


def test_only_the_usage_event_goes():
    token = chunk(b'data: {"choices":[{"text":"a"}]}\n\n')
    usage = chunk(b'data: {"choices":[],"usage":{"prompt_tokens":1}}\n\n')
    final = chunk(b'data: {"choices":[{"text":"b"}],"usage":{"prompt_tokens":1}}\n\n')
    done = chunk(b"data: [DONE]\n\n") + LAST_CHUNK
    assert without_usage_event(token + usage + done) == token + done
    assert without_usage_event(usage) == b""
    assert without_usage_event(token + final + done) == token + final + done
    assert [e["choices"][0]["text"] for e in events_of(token + final + done)] == ["a", "b"]
