"""A network on which KV takes longer than any lease: that is the spec's, and told as such, with a way out."""

from __future__ import annotations

import pytest

from disaggc.cli.main import main

SPEC = """
version: 1
cluster:
  fabric: {type: tcp, speed_per_nic: 1Gbit, allow_tcp: true}
  nodes: {h100: {count: 2, accelerator: {type: h100-sxm, per_node: 8}, nics: {per_node: 1}}}
services:
  chat:
    model: {id: meta-llama/Llama-3.1-70B}
    workload: {w: {input_tokens: TOKENS, output_tokens: 500, concurrency: 2}}
    engine: {vllm: 0.33.0}
    constraints: {mode: MODE}
"""


@pytest.mark.parametrize(
    ("tokens", "mode", "code"),
    [(100_000, "disaggregated", 1), (1000, "disaggregated", 0), (100_000, "colocated", 0)],
)
def test_prefill_and_decode_stand_apart_only_where_kv_arrives_within_a_lease(
    tmp_path, capsys, tokens, mode, code
):
    path = tmp_path / "disaggc.yaml"
    path.write_text(SPEC.replace("TOKENS", str(tokens)).replace("MODE", mode))
    assert main(["plan", str(path), "--refresh=false"]) == code
    said = capsys.readouterr().err
    assert ("DGC457" in said) == bool(code)
    if code:
        assert "KV takes 3.6 h from prefill to decode" in said
        assert "disaggc.yaml:11:25" in said
        assert "= help: write `mode: colocated`" in said
        assert "a spec cannot cause this" not in said
