"""`explain SPEC`: the terms behind every number, in both formats, and what its table leaves open."""

from __future__ import annotations

import json

import pytest

from disaggc.cli.main import main


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spec")
    assert main(["init", str(folder), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    return folder / "disaggc.yaml"


def explained(spec, capsys):
    capsys.readouterr()
    assert main(["explain", str(spec), "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)["services"]["chat"]


def test_the_terms_add_up_to_the_medians_that_the_plan_states(spec, capsys):
    found = explained(spec, capsys)
    (name,) = found["predicted"]["classes"]
    said, terms = found["predicted"]["classes"][name], found["terms"]["classes"][name]
    for latency in ("ttft_ms", "itl_ms", "e2e_ms"):
        assert sum(t["value"] for t in terms[latency]) == pytest.approx(
            said[latency]["p50"]["value"], rel=1e-4
        )
    tail = sum(t["value"] ** 2 for t in terms["ttft_tail_ms"]) ** 0.5
    assert tail == pytest.approx(said["ttft_ms"]["p99"]["value"] - said["ttft_ms"]["p50"]["value"], rel=1e-3)
    output = sum(pool["output_tok_per_s"] for pool in found["terms"]["output"])
    assert output == pytest.approx(found["predicted"]["output_tok_per_s"]["value"], rel=1e-4)
    named = {t["name"] for t in terms["ttft_ms"]}
    assert {"prompt: matrix products", "KV transfer: bytes", "first decode step"} <= named
    assert {s["name"] for s in found["terms"]["stations"]} == {"prefill", "network", "decode"}


def test_present_values_are_those_of_the_spec(spec, capsys):
    found = {s["quantity"]: s["value"] for s in explained(spec, capsys)["sensitivity"]}
    assert found["input_tokens"] == 1024
    assert found["output_tokens"] == 8192
    assert found["concurrency"] == 480


def test_the_human_text_has_the_terms_and_says_what_its_figures_and_dashes_are(spec, capsys):
    capsys.readouterr()
    assert main(["explain", str(spec)]) == 0
    text = capsys.readouterr().out
    assert "what throughput is made of" in text
    assert "what the medians of reasoning are made of" in text
    for name in (
        "first token p50",
        "prompt: matrix products",
        "KV transfer: bytes",
        "token p50",
        "kv reads",
        "end to end",
    ):
        assert name in text
    assert "halved: total tok/s" in text
    dashes = [line for line in text.splitlines() if " -  " in line]
    assert dashes
    assert "-: output tokens doubled: requests would exceed the context limit of 16,384 tokens" in text
