from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.resolve.trace_rows import TraceError
from disaggc.resolve.traces import Trace, arrival_cv, read_trace


@pytest.mark.parametrize(
    "header",
    [
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "timestamp,input_tokens,output_tokens",
        "time,Input Length,output-length",
    ],
)
def test_public_names_of_columns_are_known(header: str) -> None:
    assert read_trace(f"{header}\n0,5,6\n2,7,8\n") == Trace((5, 7), (6, 8), (0, 2))


def test_a_line_of_json_a_request() -> None:
    text = '{"timestamp": 0, "input_length": 5, "output_length": 6, "hash_ids": [1]}\n\n{"timestamp": 2, "input_length": 7, "output_length": 8}\n'
    assert read_trace(text) == Trace((5, 7), (6, 8), (0, 2))


def test_clock_times_become_seconds() -> None:
    trace = read_trace(
        "TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.5000000,5\n2023-11-16 18:15:48.0000000,6\n"
    )
    assert trace.times[1] - trace.times[0] == pytest.approx(1.5)
    assert trace.outputs == ()


def test_requests_without_tokens_are_left_out() -> None:
    assert read_trace("input_tokens,output_tokens\n5,0\n0,3\n") == Trace((5,), (3,), ())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("input_tokens,output_tokens\n", "no requests"),
        ("a,b\n1,2\n", "no column of tokens or times among `a`, `b`"),
        ("input_tokens,output_tokens\n5,x\n", "line 2: `output_tokens` is `x`"),
        ("input_tokens,output_tokens\n5\n", "line 2: `output_tokens` is absent"),
        ("input_tokens\n5\nnan\n", "line 3"),
        ("input_tokens\n1e300\n", "line 2"),
        ("timestamp,input_tokens\nsoon,5\n", "`soon` is not a time"),
        ('{"input_length": 5}\n{"input_length": \n', "line 2 is not JSON"),
        ('{"input_length": 5}\n[1]\n', "line 2 is not a JSON object"),
        ('{"input_length": true}\n', "line 1"),
        ('{"input_length": 5, "timestamp": {}}\n', "is not a time"),
        ('{"a": ' + "[" * 100_000, "line 1 is not JSON"),
        ('{"input_length": ' + "9" * 5000 + "}", "line 1"),
    ],
)
def test_a_broken_trace_says_where(text: str, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        read_trace(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("times", "cv"),
    [((0, 1, 2, 3), 0.0), ((0, 1), None), ((), None), ((5, 5, 5), None), ((3, 0, 1), math.sqrt(0.25) / 1.5)],
)
def test_variation_between_arrivals(times: tuple[float, ...], cv: float | None) -> None:
    found = arrival_cv(times)
    assert found == (None if cv is None else pytest.approx(cv))


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(['{"', "input_length", '": ', "5", "}", "\n", ",", "[", "time"])).map("".join)
)
def test_no_text_raises_anything_else(text: str) -> None:
    try:
        trace = read_trace(text)
    except TraceError:
        return
    assert all(value > 0 for value in trace.inputs + trace.outputs)


def test_recorded_production_traces_are_read(shared_data: Callable[[str], Path]) -> None:
    conversations = read_trace(shared_data("data/traces/azure/AzureLLMInferenceTrace_conv.csv").read_text())
    assert len(conversations.inputs) > 19_000
    assert sum(conversations.inputs) / len(conversations.inputs) == pytest.approx(1155, rel=0.01)
    variation = arrival_cv(conversations.times)
    assert variation is not None
    assert 0.5 < variation < 3
    mooncake = read_trace(shared_data("data/traces/mooncake/synthetic_trace.jsonl").read_text())
    assert len(mooncake.inputs) == len(mooncake.times)
