"""Published traces, replayed whole; skipped where the reference data is absent."""

from __future__ import annotations

import pytest

from disaggc.ir.plan import Shape
from disaggc.perf.events import Load, Offered, simulate
from disaggc.resolve.trace_rows import TraceError
from disaggc.resolve.traces import read_requests
from tests.perf.perf_cases import bench, load, nodes


def replayed(path, limit=None):
    recorded = sorted(read_requests(path.read_text()), key=lambda r: r.at_s)[:limit]
    one = bench(
        "Qwen/Qwen3-32B",
        nodes("h100-sxm"),
        Shape(tp=2),
        load(isl=1500, osl=200, rate=5),
        max_model_len=131072,
    )
    offered = Load.trace([Offered(r.at_s, r.inputs, r.outputs) for r in recorded])
    return recorded, simulate(one.models, one.service, one.pd(6, 14), load=offered)


def test_an_hour_of_the_azure_trace(shared_data):
    recorded, seen = replayed(shared_data("data/traces/azure/AzureLLMInferenceTrace_conv.csv"))
    assert len(recorded) == 19_366
    assert seen.failed == 0
    assert seen.requests == 19_366
    tokens = sum(r.outputs for r in recorded)
    assert seen.whole.output_tok_per_s * seen.whole.to_s == pytest.approx(tokens)
    assert seen.whole.to_s == pytest.approx(recorded[-1].at_s - recorded[0].at_s, rel=0.02)


def test_the_mooncake_trace_counts_milliseconds(shared_data):
    recorded, seen = replayed(shared_data("data/traces/mooncake/synthetic_trace.jsonl"), 1000)
    assert 60 < recorded[-1].at_s - recorded[0].at_s < 3600
    assert seen.requests == 1000


def test_rows_stay_together_where_a_value_is_zero():
    rows = read_requests("TIMESTAMP,ContextTokens,GeneratedTokens\n1,100,0\n2,200,20\n")
    assert [(r.inputs, r.outputs) for r in rows] == [(100, 1), (200, 20)]


def test_a_trace_of_lengths_alone_holds_no_requests():
    with pytest.raises(TraceError, match="no column of arrival times"):
        read_requests("input_tokens,output_tokens\n1,2\n")
