"""Bytes on one accelerator: against sums written out by hand, and laws that hold for every model and shape."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.catalog.load import load_catalog
from disaggc.catalog.sizing import (
    absorbed_bytes_per_rank,
    dcp_allowed,
    kv_bytes_per_rank,
    kv_bytes_per_token,
    state_bytes_per_rank,
    tp_allowed,
    weight_bytes_per_rank,
)
from disaggc.ir.plan import Shape

CATALOG = load_catalog()
R1 = CATALOG.model("deepseek-ai/DeepSeek-R1")
V32 = CATALOG.model("deepseek-ai/DeepSeek-V3.2")
LLAMA = CATALOG.model("meta-llama/Llama-3.1-70B")
QWEN = CATALOG.model("Qwen/Qwen3-235B-A22B")
OSS = CATALOG.model("openai/gpt-oss-120b")
FP8 = 1 + 4 / 128**2


def test_llama_over_eight_ranks():
    layers = 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672) / 8
    norms = 80 * 2 * 8192 + 8192
    ends = 2 * 128512 * 8192 / 8  # 128256 padded to a multiple of 64 x 8
    assert weight_bytes_per_rank(LLAMA, Shape(tp=8)) == pytest.approx(2 * (layers + norms + ends))


def test_key_value_projections_are_copied_above_the_number_of_kv_heads():
    layer = 4096 * 8192 * 2 / 8 + 4096 * 512 * 2 / 4  # 4 kv heads on 8 ranks: each rank holds one
    attention = 94 * layer
    experts = 94 * 128 * 3 * 4096 * 1536 / 8
    rest = 94 * (4096 * 128 + 2 * 4096 + 2 * 128) + 4096
    ends = 2 * 152064 * 4096 / 8  # padded to a multiple of 512
    assert weight_bytes_per_rank(QWEN, Shape(tp=8)) == pytest.approx(2 * (attention + experts + rest + ends))


def test_deepseek_by_shape():
    groups = {g.name: g.parameters for g in R1.weights}
    sharded = (groups["attention"] + groups["mlp"] + groups["shared_experts"]) * FP8
    copied = groups["attention_replicated"] * FP8 + (groups["router"] + groups["norm"]) * 2
    routed = groups["routed_experts"] * FP8
    ends = 2 * 129280 * 7168 * 2
    tp8 = sharded / 8 + copied + routed / 8 + ends * 129536 / 129280 / 8
    assert weight_bytes_per_rank(R1, Shape(tp=8)) == pytest.approx(tp8)
    assert weight_bytes_per_rank(R1, Shape(tp=8, ep=8)) == pytest.approx(tp8)
    dp8 = sharded + copied + routed / 8 + ends
    assert weight_bytes_per_rank(R1, Shape(tp=1, dp=8, ep=8)) == pytest.approx(dp8)


def test_whole_experts_are_rounded_up():
    shape = Shape(tp=1, dp=12, ep=12)
    groups = {g.name: g.parameters for g in R1.weights}
    without = weight_bytes_per_rank(R1, Shape(tp=1, dp=12))
    difference = weight_bytes_per_rank(R1, shape) - without
    assert difference == pytest.approx(groups["routed_experts"] * FP8 * (22 / 256 - 1 / 12))


def test_pipeline_stages_take_layers_and_one_end():
    # 80 layers halve evenly, and the embedding on one stage weighs what the head on the other does.
    halves = weight_bytes_per_rank(LLAMA, Shape(tp=8)) / 2
    assert weight_bytes_per_rank(LLAMA, Shape(tp=8, pp=2)) == pytest.approx(halves)
    three = weight_bytes_per_rank(LLAMA, Shape(tp=8, pp=3))
    assert three == pytest.approx((halves * 2 - 4 * 128512 * 8192 / 8) * 27 / 80 + 2 * 128512 * 8192 / 8)
    gemma = CATALOG.model("google/gemma-3-27b-it")
    assert weight_bytes_per_rank(gemma, Shape(pp=2)) > gemma.weight_bytes / 2 + 262208 * 5376 * 0.99


def test_kv_bytes_of_a_token():
    assert kv_bytes_per_token(LLAMA, "auto") == (327680, 0)
    assert kv_bytes_per_token(LLAMA, "fp8") == (163840, 0)
    assert kv_bytes_per_token(LLAMA, "auto", "float32") == (655360, 0)
    assert kv_bytes_per_token(OSS, "auto") == (36864, 36864)
    assert kv_bytes_per_token(R1, "auto") == (70272, 0)
    assert kv_bytes_per_token(R1, "fp8") == (35136, 0)
    assert kv_bytes_per_token(V32, "fp8_ds_mla") == ((656 + 132) * 61, 0)
    assert kv_bytes_per_token(V32, "fp8") == ((656 + 132) * 61, 0)
    assert kv_bytes_per_token(V32, "auto") == (70272 + 132 * 61, 0)


def test_kv_bytes_on_a_rank():
    assert kv_bytes_per_rank(LLAMA, Shape(tp=8), "auto") == (327680 / 8, 0)
    assert kv_bytes_per_rank(LLAMA, Shape(tp=16), "auto") == (327680 / 8, 0)
    assert kv_bytes_per_rank(LLAMA, Shape(tp=4, pp=2), "auto") == (327680 / 8, 0)
    assert kv_bytes_per_rank(R1, Shape(tp=8), "auto") == (70272, 0)
    assert kv_bytes_per_rank(R1, Shape(tp=1, dp=8, ep=8), "auto") == (70272, 0)
    assert kv_bytes_per_rank(OSS, Shape(tp=2), "auto") == (18432, 18432)
    assert kv_bytes_per_rank(R1, Shape(tp=8, pp=2), "auto")[0] == pytest.approx(70272 * 31 / 61)


def test_ranks_that_hold_copies_share_the_tokens():
    assert kv_bytes_per_rank(R1, Shape(tp=8, dcp=8), "auto") == (70272 / 8, 0)
    assert kv_bytes_per_rank(R1, Shape(tp=16, dcp=8), "auto") == (70272 / 8, 0)
    assert kv_bytes_per_rank(V32, Shape(tp=8, dcp=4), "auto") == ((70272 + 132 * 61) / 4, 0)
    # 4 KV heads of 128 in 94 layers, K and V of 2 bytes: two of eight ranks hold the same head
    assert kv_bytes_per_rank(QWEN, Shape(tp=8), "auto") == (2 * 94 * 2 * 128, 0)
    assert kv_bytes_per_rank(QWEN, Shape(tp=8, dcp=2), "auto") == (94 * 2 * 128, 0)


@pytest.mark.parametrize(
    ("model", "tp", "allowed"),
    [
        (R1, 8, {1, 2, 4, 8}),
        (V32, 16, {1, 2, 4, 8, 16}),
        (QWEN, 4, {1}),
        (QWEN, 8, {1, 2}),
        (QWEN, 16, {1, 2, 4}),
        (CATALOG.model("zai-org/GLM-4.5"), 48, {1, 2, 3, 4, 6}),  # 96 heads, 8 KV heads
        (CATALOG.model("zai-org/GLM-4.5"), 32, {1, 2, 4}),
        (LLAMA, 8, {1}),
        (OSS, 64, {1}),  # half of its layers have sliding windows
    ],
)
def test_degrees_by_which_kv_can_be_shared(model, tp, allowed):
    assert {dcp for dcp in range(1, 65) if dcp_allowed(model, tp, dcp) is None} == allowed


def test_recurrent_state_and_the_absorbed_projection():
    hybrid = CATALOG.model("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert state_bytes_per_rank(hybrid, Shape(tp=4)) == hybrid.state_bytes_per_sequence / 4
    assert state_bytes_per_rank(LLAMA, Shape(tp=4)) == 0
    assert absorbed_bytes_per_rank(R1, Shape(tp=8)) == 61 * 512 * 128 * 256 * 2 / 8
    assert absorbed_bytes_per_rank(LLAMA, Shape(tp=8)) == 0


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        (LLAMA, {1, 2, 4, 8, 16, 32, 64}),
        (QWEN, {1, 2, 4, 8, 16, 32, 64}),
        (R1, {1, 2, 4, 8, 16, 32, 64}),
        (CATALOG.model("zai-org/GLM-4.5"), {1, 2, 4, 8, 16, 24, 32, 48}),
    ],
)
def test_tp_degrees(model, allowed):
    assert {tp for tp in range(1, 65) if tp_allowed(model, tp) is None} == allowed


def test_the_reason_names_both_numbers():
    assert "96" in tp_allowed(CATALOG.model("zai-org/GLM-4.5"), 5)
    assert "8 key-value heads and tp 12" in tp_allowed(CATALOG.model("zai-org/GLM-4.5"), 12)


models = st.sampled_from([CATALOG.model(name) for name in CATALOG.model_ids])
powers = st.sampled_from([1, 2, 4, 8])


@given(model=models, tp=powers, pp=st.sampled_from([1, 2]), dp=powers)
def test_more_accelerators_never_hold_more(model, tp, pp, dp):
    shape = Shape(tp=tp, pp=pp, dp=dp)
    here = weight_bytes_per_rank(model, shape)
    assert here <= model.weight_bytes * 1.02
    assert weight_bytes_per_rank(model, Shape(tp=2 * tp, pp=pp, dp=dp)) <= here
    assert weight_bytes_per_rank(model, Shape(tp=tp, pp=pp, dp=2 * dp)) <= here
    assert here * tp * pp * dp >= model.weight_bytes * 0.99
    rank = sum(kv_bytes_per_rank(model, shape, "auto"))
    assert sum(kv_bytes_per_rank(model, Shape(tp=2 * tp, pp=pp), "auto")) <= rank
    assert rank <= sum(kv_bytes_per_token(model, "auto"))
    assert sum(kv_bytes_per_rank(model, shape, "fp8")) < rank or model.kv_cache_dtype == "fp8"
