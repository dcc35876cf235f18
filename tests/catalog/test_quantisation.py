"""Bytes of a parameter by scheme, and what ignore lists leave plain."""

from __future__ import annotations

import json

import pytest

from disaggc.catalog.model_config import read_model_config
from disaggc.catalog.module_names import ModuleSet

BASE = {
    "model_type": "deepseek_v3", "hidden_size": 1024, "intermediate_size": 4096, "moe_intermediate_size": 512,
    "num_hidden_layers": 4, "num_attention_heads": 8, "n_routed_experts": 16, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "q_lora_rank": 256, "kv_lora_rank": 128,
    "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip


def group_bytes(section):
    outcome = read_model_config(json.dumps({**BASE, "quantization_config": section}), "config.json")
    assert outcome.value is not None, [d.message for d in outcome.diagnostics]
    return outcome.value, {group.name: group.bytes_per_parameter for group in outcome.value.weights}


def compressed(weights, activations=None, **more):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **more}


FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
FLOAT4 = {"num_bits": 4, "type": "float", "group_size": 16}


@pytest.mark.parametrize(
    ("section", "scheme", "each", "compute"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 1 + 4 / 16384, "fp8"),
        ({"quant_method": "fp8"}, "fp8", 1.0, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8", 1.0, "fp8"),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            "int4",
            0.5 + 2.5 / 128,
            "bf16",
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4", 0.5 + 2 / 128, "bf16"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, "int8", 1.0, "bf16"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 0.5 + 4 / 64, "bf16"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 1.0, "bf16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 0.5625, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", 1.0, "fp8"),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "NVFP4"}}, "nvfp4", 0.5625, "fp4"),
        (
            {"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}},
            "mxfp4",
            0.53125,
            "fp4",
        ),
        (compressed(FLOAT8, FLOAT8), "fp8", 1.0, "fp8"),
        (compressed(FLOAT8), "fp8", 1.0, "bf16"),
        (compressed(INT8, INT8), "int8", 1.0, "int8"),
        (
            compressed({"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}),
            "int4",
            0.5625,
            "bf16",
        ),
        (compressed(FLOAT4, FLOAT4), "nvfp4", 0.5625, "fp4"),
    ],
)
def test_schemes(section, scheme, each, compute):
    model, groups = group_bytes(section)
    assert (model.quantization, model.compute_precision) == (scheme, compute)
    for name in ("routed_experts", "shared_experts", "mlp", "attention"):
        assert groups[name] == pytest.approx(each), name
    for name in ("embedding", "head", "router", "norm"):
        assert groups[name] == 2, name


def test_mxfp4_takes_experts_alone():
    model, groups = group_bytes(
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    )
    assert model.quantization == "mxfp4"
    assert groups["routed_experts"] == pytest.approx(0.53125)
    assert groups["attention"] == groups["mlp"] == 2


@pytest.mark.parametrize(
    ("ignore", "plain"),
    [
        (["lm_head"], set()),
        (
            ["re:.*self_attn.*", "re:.*shared_experts.*"],
            {"attention", "attention_replicated", "shared_experts"},
        ),
        (["re:.*mlp\\.(gate|up|gate_up|down)_proj.*"], {"mlp"}),
        (["model.layers.*.self_attn*"], {"attention", "attention_replicated"}),
        (["re:.*experts\\.[0-9]+\\..*"], {"routed_experts"}),
        ([f"model.layers.{i}.self_attn.o_proj" for i in range(4)], {"attention"}),
        ([f"language_model.model.layers.{i}.mlp.shared_experts" for i in range(4)], {"shared_experts"}),
    ],
)
def test_ignored_modules_stay_plain(ignore, plain):
    _, groups = group_bytes(compressed(FLOAT8, FLOAT8, ignore=ignore))
    for name in ("routed_experts", "shared_experts", "mlp", "attention", "attention_replicated"):
        assert groups[name] == (2 if name in plain else 1), name


def test_a_layer_can_be_left_out_by_number():
    _, whole = group_bytes(compressed(FLOAT8, FLOAT8))
    _, partly = group_bytes(compressed(FLOAT8, FLOAT8, ignore=["model.layers.3*"]))
    assert whole["attention"] == 1
    assert partly["attention"] == pytest.approx(1.25)
    assert partly["mlp"] == 1


def test_groups_with_targets_of_their_own():
    section = compressed(FLOAT8, FLOAT8)
    section["config_groups"]["group_1"] = {"targets": ["re:.*mlp.experts.*"], "weights": FLOAT4}
    model, groups = group_bytes(section)
    assert groups["routed_experts"] == pytest.approx(0.5625)
    assert groups["attention"] == 1
    assert model.quantization == "nvfp4"


@pytest.mark.parametrize(
    ("section", "cache"),
    [
        (compressed(FLOAT8, FLOAT8), "auto"),
        (compressed(FLOAT8, FLOAT8, kv_cache_scheme={"num_bits": 8, "type": "float"}), "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, "fp8"),
    ],
)
def test_a_declared_cache_dtype_is_what_auto_becomes(section, cache):
    model, _ = group_bytes(section)
    assert model.kv_cache_dtype == cache


@pytest.mark.parametrize(
    "pattern", ["re:(a+)+$", "re:" + "x" * 300, "re:(", "re:.*.*.*.*.*.*x", "re:(a|aa)*b"]
)
def test_patterns_that_could_run_away_match_nothing(pattern):
    assert not ModuleSet((pattern,)).matches(("a" * 60,))
