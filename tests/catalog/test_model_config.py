"""Reading configs: nested parts, habits of families, and everything that is wrong with a file said as DGC203."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.catalog.facts import LayerKind
from disaggc.catalog.model_config import read_model_config
from disaggc.diagnostics import Severity

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
MOE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip
MLA = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "num_hidden_layers": 61, "num_attention_heads": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
}  # fmt: skip
LINEAR = {
    "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 8,
    "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936,
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
}  # fmt: skip


def read(config):
    return read_model_config(json.dumps(config), "config.json")


def facts(config):
    outcome = read(config)
    assert outcome.value is not None, [d.message for d in outcome.diagnostics]
    return outcome.value


def refused(config_or_text):
    text = config_or_text if isinstance(config_or_text, str) else json.dumps(config_or_text)
    outcome = read_model_config(text, "config.json")
    assert outcome.value is None
    assert outcome.diagnostics
    assert {d.code for d in outcome.diagnostics} == {"DGC203"}
    assert {d.severity for d in outcome.diagnostics} == {Severity.ERROR}
    return " | ".join(d.message for d in outcome.diagnostics)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        *(
            (LLAMA, key)
            for key in LLAMA
            if key not in {"model_type", "num_key_value_heads", "tie_word_embeddings"}
        ),
        (MOE, "num_experts_per_tok"),
        (MLA, "qk_nope_head_dim"),
        (MLA, "qk_rope_head_dim"),
        (LINEAR, "linear_key_head_dim"),
        (LINEAR, "linear_num_key_heads"),
    ],
)
def test_a_missing_essential_key_is_named(config, key):
    assert f"`{key}` is missing" in refused({k: v for k, v in config.items() if k != key})


def test_all_missing_keys_are_told_at_once():
    message = refused({"model_type": "llama"})
    for key in ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "intermediate_size"):
        assert f"`{key}`" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", -1), ("hidden_size", 0), ("hidden_size", 10**30), ("hidden_size", "4096"),
        ("hidden_size", True), ("hidden_size", 4096.5), ("hidden_size", [1, 2]), ("num_hidden_layers", 10**9),
        ("num_hidden_layers", {}), ("vocab_size", -5), ("num_key_value_heads", 7), ("num_key_value_heads", [8] * 3),
        ("tie_word_embeddings", "yes"), ("model_type", 5), ("torch_dtype", {"a": 1}),
        ("layer_types", ["full_attention"]), ("layer_types", ["never_seen"] * 32), ("layer_types", 3),
        ("quantization_config", []), ("quantization_config", {"quant_method": "secret"}),
        ("quantization_config", {"quant_method": "compressed-tensors", "config_groups": {}}),
    ],
)  # fmt: skip
def test_a_bad_value_is_named(key, value):
    message = refused({**LLAMA, key: value})
    shown = {"num_key_value_heads": "head", "quantization_config": "quant"}.get(key, key)
    assert shown in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
def test_numbers_that_are_none(number):
    text = json.dumps(LLAMA).replace("4096", number)
    refused(text)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "3", '"x"', "{", "{]", "\x00", "[" * 200_000, '{"a":' * 100_000]
)
def test_a_file_that_is_no_config(text):
    assert "config.json" in refused(text)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "t5", "is_encoder_decoder": True, "d_model": 512},
        {"model_type": "bert", "hidden_size": 768, "num_hidden_layers": 12},
        {"_class_name": "FluxPipeline"},
        {"model_type": "rwkv", "hidden_size": 768},
    ],
)
def test_what_is_no_decoder_is_refused_by_name(config):
    message = refused(config)
    assert "missing" not in message


def test_too_many_experts_are_chosen():
    assert "`num_experts_per_tok` is 129" in refused({**MOE, "num_experts_per_tok": 129})


def test_a_nested_text_part_wins_and_the_outer_object_fills_in():
    nested = {
        "architectures": ["OuterForConditionalGeneration"], "model_type": "llava", "torch_dtype": "float16",
        "tie_word_embeddings": False, "vision_config": {"hidden_size": 1024, "num_hidden_layers": 24},
        "text_config": {**{k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}, "architectures": ["Inner"]},
    }  # fmt: skip
    model = facts(nested)
    assert model.weights == facts(LLAMA).weights
    assert (model.architecture, model.dtype, model.multimodal) == (
        "OuterForConditionalGeneration",
        "float16",
        True,
    )
    assert model.tower_parameters == pytest.approx(24 * 12 * 1024**2, rel=0.05)
    assert model.weight_bytes == facts(LLAMA).weight_bytes + 2 * model.tower_parameters


def test_class_defaults_fill_a_nested_part_and_never_a_flat_config():
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    model = facts({"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}})
    assert model.parameters / 1e9 == pytest.approx(3.880, rel=0.001)
    assert model.kv_bytes_per_token == 34 * 2 * 4 * 256 * 2
    assert "`num_attention_heads` is missing" in refused(text)


def test_block_configs_become_layers():
    blocks = [
        {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 2.625}},
        {"attention": {"no_op": True}, "ffn": {"ffn_mult": 5.25}},
        {"attention": {"n_heads_in_group": 16}, "ffn": {"no_op": True}},
    ]
    base = {
        "model_type": "nemotron-nas",
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_hidden_layers": 3,
    }
    model = facts({**base, "vocab_size": 128256, "tie_word_embeddings": False, "block_configs": blocks})
    assert model.layers == (LayerKind.FULL, LayerKind.NONE, LayerKind.FULL)
    groups = {g.name: g.parameters for g in model.weights}
    assert groups["mlp"] == 3 * 8192 * (14336 + 28672)
    assert groups["attention"] == 2 * 2 * 8192 * 8192
    assert model.kv_elements_per_token_full == 2 * 128 * (8 + 4)
    linear = [{"attention": {"replace_with_linear": True}, "ffn": {}}] * 3
    refused({**base, "vocab_size": 128256, "block_configs": linear})


@pytest.mark.parametrize(
    ("extra", "sliding"),
    [
        ({}, 0),
        ({"sliding_window": None}, 0),
        ({"sliding_window": 0}, 0),
        ({"sliding_window": -1}, 0),
        ({"sliding_window": 4096}, 32),
        ({"sliding_window": 4096, "use_sliding_window": False}, 0),
        ({"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 20}, 12),
        ({"sliding_window": 4096, "sliding_window_pattern": 4}, 24),
        ({"sliding_window": 4096, "sliding_window_pattern": "LLLG"}, 24),
        ({"sliding_window": 4096, "layer_types": ["full_attention", "sliding_attention"] * 16}, 16),
    ],
)
def test_sliding_windows(extra, sliding):
    model = facts({**LLAMA, **extra})
    assert model.layers.count(LayerKind.SLIDING) == sliding
    assert model.kv_elements_per_token_sliding == sliding * 2 * 8 * 128
    assert model.kv_elements_per_token_full == (32 - sliding) * 2 * 8 * 128
    assert model.sliding_window == (4096 if sliding else 0)


def test_layers_that_read_anothers_cache_keep_none():
    model = facts({**LLAMA, "num_kv_shared_layers": 10})
    assert model.layers.count(LayerKind.NONE) == 10
    assert model.kv_elements_per_token_full == 22 * 2 * 8 * 128

    every_third = facts({**LLAMA, "use_cla": True, "cla_share_factor": 3})
    assert every_third.layers.count(LayerKind.FULL) == 11


def test_qwen_names_a_window_it_does_not_use():
    assert facts({**LLAMA, "model_type": "qwen2", "sliding_window": 4096}).sliding_window == 0
    used = {**LLAMA, "model_type": "qwen2", "sliding_window": 4096, "use_sliding_window": True}
    assert facts({**used, "max_window_layers": 28}).layers.count(LayerKind.SLIDING) == 4


def test_experts_by_layer():
    every_other = facts({**MOE, "decoder_sparse_step": 2, "mlp_only_layers": [1]})
    groups = {g.name: g.parameters for g in every_other.weights}
    assert groups["routed_experts"] == 23 * 128 * 3 * 2048 * 768
    assert groups["mlp"] == 25 * 3 * 2048 * 6144


def test_an_unknown_architecture_is_sized_and_says_so():
    model = facts({**LLAMA, "model_type": "brand_new"})
    assert model.parameters == facts(LLAMA).parameters
    assert any("brand_new" in note for note in model.notes)


def test_lists_of_equal_values_stand_for_one():
    alike = {**MOE, "num_experts_per_tok": [8] * 48, "moe_intermediate_size": [768] * 48}
    assert facts(alike).weights == facts(MOE).weights


scalars = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=6), v, max_size=3)
)
extras = (
    "sliding_window", "layer_types", "text_config", "vision_config", "quantization_config", "linear_attn_config",
    "attn_config", "ffn_config", "hybrid_override_pattern", "num_kv_shared_layers", "moe_layers", "moe_layer_freq",
    "mamba_d_state", "mamba_n_heads", "block_configs", "per_layer_config", "kv_lora_rank", "index_topk", "gating",
    "mlp_layer_types", "attn_layer_period", "attention_other_setting", "architectures", "conv_L_cache",
    "model_type", "torch_dtype", "is_encoder_decoder", "attn_type_list", "sliding_window_pattern", "use_bias",
    "compression_config", "n_inner", "expansion_ratio", "mamba_dt_rank", "shared_expert_intermediate_size",
)  # fmt: skip


@given(
    base=st.sampled_from([LLAMA, MOE, MLA, LINEAR, {}]),
    changes=st.dictionaries(
        st.sampled_from(sorted({*LLAMA, *MOE, *MLA, *LINEAR, *extras})), values, max_size=5
    ),
)
def test_no_config_raises(base, changes):
    outcome = read_model_config(json.dumps({**base, **changes}), "config.json")
    if outcome.value is None:
        assert all(d.code == "DGC203" for d in outcome.diagnostics)
    else:
        assert outcome.value.parameters > 0
        assert 0 <= outcome.value.active_parameters <= outcome.value.parameters


quant_values = st.dictionaries(
    st.sampled_from([
        "quant_method", "bits", "group_size", "weight_block_size", "modules_to_not_convert", "ignore", "config_groups",
        "quant_algo", "global_quant_config", "kv_cache_scheme", "load_in_4bit", "sym", "dynamic", "quantization",
    ]),
    values
    | st.sampled_from(["fp8", "awq", "gptq", "mxfp4", "modelopt", "quark", "compressed-tensors", "bitsandbytes"]),
    max_size=5,
)  # fmt: skip


@given(section=quant_values)
def test_no_quantisation_raises(section):
    outcome = read_model_config(json.dumps({**LLAMA, "quantization_config": section}), "config.json")
    assert (outcome.value is None) == bool(outcome.diagnostics)


@given(text=st.text(max_size=200))
def test_no_text_raises(text):
    outcome = read_model_config(text, "config.json")
    assert outcome.value is None
    assert outcome.diagnostics[0].code == "DGC203"
