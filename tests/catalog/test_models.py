"""The catalog's models reproduce their published sizes; the reader reproduces counts made by the models' own code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disaggc.catalog.facts import Attention, LayerKind
from disaggc.catalog.load import load_catalog
from disaggc.catalog.model_config import read_model_config
from disaggc.catalog.sizing import kv_bytes_per_token

CATALOG = load_catalog()
COUNTED = json.loads((Path(__file__).parent / "facts" / "counted.json").read_text(encoding="utf-8"))
"""Configs written for this test; `parameters` counted on the meta device by the model code of transformers 5.19,
`kv_elements` from the output widths of its key and value projections."""

# Billions in all and active, KV bytes of a token at 16 bits: tables of the models' reports.
PUBLISHED = [
    ("meta-llama/Llama-3.1-8B", 8.030, 8.030, 131072),
    ("meta-llama/Llama-3.1-70B", 70.554, 70.554, 327680),
    ("meta-llama/Llama-3.1-405B", 405.853, 405.853, 516096),
    ("Qwen/Qwen3-32B", 32.762, 32.762, 262144),
    ("Qwen/Qwen3-30B-A3B", 30.532, 3.353, 98304),
    ("Qwen/Qwen3-235B-A22B", 235.094, 22.191, 192512),
    ("openai/gpt-oss-20b", 20.915, 4.187, 49152),
    ("openai/gpt-oss-120b", 116.829, 5.712, 73728),
    ("deepseek-ai/DeepSeek-V3", 671.026, 37.552, 70272),
    ("deepseek-ai/DeepSeek-R1", 671.026, 37.552, 70272),
    ("deepseek-ai/DeepSeek-V3.2", 671.0, 37.6, 70272),
    ("moonshotai/Kimi-K2-Instruct", 1026.408, 32.862, 70272),
    ("zai-org/GLM-4.5", 352.8, 33.6, 376832),
    ("zai-org/GLM-4.5-Air", 106.85, 13.4, 188416),
    ("mistralai/Mistral-Small-24B-Instruct-2501", 23.572, 23.572, 163840),
    ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46.703, 12.88, 131072),
    ("deepseek-ai/DeepSeek-V2-Lite", 15.706, 2.66, 31104),
    ("Qwen/Qwen2.5-72B-Instruct", 72.706, 72.706, 327680),
    ("google/gemma-3-27b-it", 27.009, 27.009, 507904),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 107.770, 17.17, 196608),
]


@pytest.mark.parametrize(("name", "total", "active", "kv_bytes"), PUBLISHED)
def test_published_sizes(name, total, active, kv_bytes):
    model = CATALOG.model(name)
    assert model.parameters / 1e9 == pytest.approx(total, rel=0.005)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.005)
    assert model.kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize("name", CATALOG.model_ids)
def test_every_entry_is_sound(name):
    model = CATALOG.model(name)
    assert model.id == name
    assert len(model.source) > 10
    assert model.weight_bytes > 0
    assert model.max_position >= 8192
    assert 0 < model.active_parameters <= model.parameters
    assert not any("not one disaggc knows" in note for note in model.notes)
    assert all(0.4 < group.bytes_per_parameter <= 2 for group in model.weights)


def test_at_least_fifteen_models_and_their_aliases():
    assert len(CATALOG.model_ids) >= 15
    instruct = CATALOG.model("meta-llama/Llama-3.1-70B-Instruct")
    assert instruct.id == "meta-llama/Llama-3.1-70B-Instruct"
    assert instruct.weights == CATALOG.model("meta-llama/Llama-3.1-70B").weights
    assert CATALOG.model("nobody/nothing") is None
    assert CATALOG.model("aliases") is None


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_counted_by_the_models_own_code(name):
    row = COUNTED[name]
    outcome = read_model_config(json.dumps(row["config"]), name)
    assert outcome.value is not None, [d.message for d in outcome.diagnostics]
    model = outcome.value
    assert model.parameters == pytest.approx(row["parameters"], rel=2e-4)
    if "kv_elements" in row:
        elements = model.kv_elements_per_token_full + model.kv_elements_per_token_sliding
        assert elements == row["kv_elements"]


def test_the_reference_table_is_reproduced(shared_data):
    table = json.loads(shared_data("data/vllm/models.json").read_text(encoding="utf-8"))
    for name, row in table.items():
        model = read_model_config(json.dumps(row["config"]), name).value
        assert model.parameters == pytest.approx(row["params"]["total"], rel=0.005), name
        assert model.active_parameters == pytest.approx(row["params"]["active"], rel=0.005), name
        assert model.kv_bytes_per_token == row["kv_bytes_per_token_bf16"], name


def test_entries_agree_with_the_checkpoints_own_configs(shared_data):
    folder = shared_data("data/models")
    for file in sorted(folder.glob("*.config.json")):
        given = read_model_config(file.read_text(encoding="utf-8"), file.name).value
        name = file.name.removesuffix(".config.json").replace("--", "/")
        own = CATALOG.model(name)
        assert own is not None, name
        assert own.weights == given.weights, name
        assert own.layers == given.layers, name
        assert (own.quantization, own.max_position) == (given.quantization, given.max_position), name


def test_layer_kinds_of_mixed_models():
    oss = CATALOG.model("openai/gpt-oss-120b")
    assert oss.layers.count(LayerKind.SLIDING) == oss.layers.count(LayerKind.FULL) == 18
    assert oss.layers[0] is LayerKind.SLIDING
    assert oss.kv_elements_per_token_full * 2 == 36864
    assert oss.sliding_window == 128
    gemma = CATALOG.model("google/gemma-3-27b-it")
    assert gemma.layers.count(LayerKind.FULL) == 10
    following = CATALOG.model("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert following.attention is Attention.HYBRID
    assert following.layers.count(LayerKind.FULL) == 12
    # 36 layers: 32 value heads of a 128 x 128 matrix and 8192 convolution channels over 3 tokens, at 16 bits.
    assert following.state_bytes_per_sequence == 36 * (32 * 128 * 128 + 8192 * 3) * 2


def test_compressed_caches_of_deepseek_v4():
    model = read_model_config(json.dumps(COUNTED["deepseek-v4-flash"]["config"]), "config.json").value
    # 21 layers keep an entry for each 4 tokens, 20 for each 128, all 43 one for each token of the window.
    assert model.kv_elements_per_token_full == 21 * 512 // 4 + 20 * 512 // 128
    assert model.kv_elements_per_token_sliding == 43 * 512
    assert model.kv_extra_bytes_per_token == 21 * 132 // 4
    assert model.sliding_window == 128
    full, sliding = kv_bytes_per_token(model, "auto")
    assert full == pytest.approx((21 / 4 + 20 / 128) * 584 + 21 * 33)
    assert sliding == pytest.approx(43 * 584)


def test_longcat_attends_twice_a_layer():
    config = {
        "model_type": "longcat_flash", "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64,
        "ffn_hidden_size": 12288, "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "zero_expert_num": 256,
        "moe_topk": 12, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "vocab_size": 131072, "tie_word_embeddings": False,
    }  # fmt: skip
    model = read_model_config(json.dumps(config), "config.json").value
    assert model.parameters / 1e9 == pytest.approx(560, rel=0.005)
    assert model.kv_bytes_per_token == 56 * 576 * 2


def test_deepseek_tells_attention_experts_and_prediction_apart():
    model = CATALOG.model("deepseek-ai/DeepSeek-V3.2")
    groups = {group.name: group for group in model.weights}
    assert groups["routed_experts"].parameters == 653_908_770_816
    assert groups["routed_experts"].active == 653_908_770_816 * 8 // 256
    assert groups["shared_experts"].parameters == 2_554_331_136
    assert groups["indexer"].active == 0
    assert model.kv_extra_bytes_per_token == 61 * 132
    assert model.mtp_layers == 1
    assert groups["routed_experts"].bytes_per_parameter == pytest.approx(1 + 4 / 128**2)
    assert groups["embedding"].bytes_per_parameter == 2
