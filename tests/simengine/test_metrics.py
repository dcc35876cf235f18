"""The metrics page against the names of vLLM and against what was done."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from tests.simengine.doubles import Double, run, transfer, up

SHARED = (
    Path(os.environ.get("DISAGGC_SHARED", Path(__file__).resolve().parents[2].parent / "shared"))
    / "data/vllm"
)
SAMPLE = re.compile(r'^([a-z:_0-9]+)(\{(?:[a-z_]+="(?:[^"\\]|\\.)*",?)*\})? (\S+)$')


def page() -> str:
    async def go():
        p, d = Double(*transfer(role="kv_producer")), Double(*transfer(role="kv_consumer"))
        async with up(p, d):
            params = await p.prefill(list(range(100)))
            await d.complete(list(range(100)), 20, kv_transfer_params=params)
            await d.complete(list(range(64)), 4)
            return (await d.get("/metrics")).body.decode()

    return run(go())


def test_every_line_is_prometheus_text():
    text = page()
    kinds: dict[str, str] = {}
    seen = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, f"{name} declared twice"
            kinds[name] = kind
        elif not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            assert not math.isnan(float(match[3]))
            assert (match[1], match[2]) not in seen, line
            seen.add((match[1], match[2]))
            base = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert kinds.get(match[1]) in ("gauge", "counter") or kinds.get(base) == "histogram", line
    assert text.endswith("\n")


def test_another_parser_agrees():
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus_client is not installed")
    families = {f.name: f for f in parser.text_string_to_metric_families(page())}
    assert families["vllm:prompt_tokens"].type == "counter"
    buckets = [s for s in families["vllm:request_prompt_tokens"].samples if s.name.endswith("_bucket")]
    values = [s.value for s in buckets]
    assert values == sorted(values)
    assert values[-1] == 2


def test_names_and_buckets_are_those_of_vllm():
    names = SHARED / "metrics-0.33.0.txt"
    if not names.exists():
        pytest.skip(f"{names} is not here: set DISAGGC_SHARED to compare with vLLM's own names")
    known = set(names.read_text().split()) | {"vllm:prompt_tokens_total"}
    text = page()
    ours = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE vllm:")}
    assert {n if n in known else n.removesuffix("_total") for n in ours} <= known
    real = (SHARED / "samples/metrics_pd_decode.txt").read_text()
    limit = re.compile(r'^(vllm:\w+)_bucket\{.*le="([^"]+)"', re.MULTILINE)

    def edges(of: str) -> dict[str, set[float]]:
        found: dict[str, set[float]] = {}
        for name, edge in limit.findall(of):
            found.setdefault(name, set()).add(float(edge))
        return found

    theirs, mine = edges(real), edges(text)
    lengths = {n for n in mine if "tokens" in n and "iteration" not in n}  # these end at the model's length
    assert set(mine) <= set(theirs)
    assert {n: e for n, e in mine.items() if n not in lengths} == {
        n: theirs[n] for n in mine if n not in lengths
    }
    types = re.compile(r"^# TYPE (vllm:\S+) (\w+)", re.MULTILINE)
    missing = {n for n, _ in types.findall(real) if not n.endswith("_created")} - ours
    assert {n for n in missing if "estimated_" not in n} == set()


def test_counts_are_right():
    async def go():
        async with up(Double("--enable-prompt-tokens-details")) as (double,):
            first = await double.complete(list(range(100)), 5)
            second = await double.complete(list(range(100)), 5)
            return first.json, second.json, await double.metrics()

    first, second, seen = run(go())
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": 96}
    assert seen["vllm:prompt_tokens_total"] == 200
    assert seen["vllm:prompt_tokens_by_source_total{local_compute}"] == 104
    assert seen["vllm:prompt_tokens_by_source_total{local_cache_hit}"] == 96
    assert (seen["vllm:prefix_cache_queries_total"], seen["vllm:prefix_cache_hits_total"]) == (200, 96)
    assert seen["vllm:generation_tokens_total"] == 10
    assert seen["vllm:request_success_total{length}"] == 2
    assert seen["vllm:inter_token_latency_seconds_count"] == 8
    assert seen["vllm:time_to_first_token_seconds_count"] == 2
    assert seen["vllm:num_requests_running"] == seen["vllm:kv_cache_usage_perc"] == 0
