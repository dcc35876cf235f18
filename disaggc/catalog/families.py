"""What a config.json leaves to its architecture's code: biases, norms, gates and tied embeddings, by `model_type`.

Holds habits of families only; every number comes from the config itself. Keys in the config win over these habits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """Habits of one architecture.

    gated: three MLP matrices instead of two. qkv_bias, out_bias, mlp_bias: bias vectors where the config is silent.
    norms: norm vectors of a decoder layer; norm_bias: layer norm (weight and bias) instead of RMS norm.
    qk_norm: a norm on queries and keys: over one head, over all heads, or none. tied: the head reuses the embedding.
    learned_positions: the embedding has a second table, one row a position. query_gate: queries come with a gate of
    their size. default_period: layers of one attention pattern where no key gives it (0 = all alike). head_dim: where
    the config is silent (0 = hidden size over heads).
    """

    gated: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    norms: int = 2
    norm_bias: bool = False
    qk_norm: Literal["none", "head", "all"] = "none"
    tied: bool = False
    learned_positions: bool = False
    query_gate: bool = False
    default_period: int = 0
    head_dim: int = 0


_PLAIN = Family()
_TIED = Family(tied=True)
_BIASED = Family(qkv_bias=True)
_QUERY_NORM = Family(qk_norm="head")
_QWEN3 = Family(qk_norm="head", head_dim=128)
_CLASSIC = Family(gated=False, qkv_bias=True, out_bias=True, mlp_bias=True, norm_bias=True)
_GEMMA = Family(tied=True, norms=4, head_dim=256)
_COHERE = Family(tied=True, norms=1, norm_bias=False)

FAMILIES: dict[str, Family] = {
    "llama": _PLAIN,
    "mistral": _PLAIN,
    "mixtral": _PLAIN,
    "qwen2": _BIASED,
    "qwen2_moe": _BIASED,
    "qwen2_vl": _BIASED,
    "qwen2_vl_text": _BIASED,
    "qwen2_5_vl": _BIASED,
    "qwen2_5_vl_text": _BIASED,
    "qwen": _BIASED,
    "qwen3": _QWEN3,
    "qwen3_moe": _QUERY_NORM,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QUERY_NORM,
    "qwen3_omni_moe_text": _QUERY_NORM,
    "qwen3_next": Family(qk_norm="head", query_gate=True, head_dim=256),
    "qwen3_5_text": Family(qk_norm="head", query_gate=True, head_dim=256),
    "qwen3_5_moe_text": Family(qk_norm="head", query_gate=True, head_dim=256),
    "gemma": Family(tied=True, head_dim=256),
    "gemma2": replace(_GEMMA, default_period=2),
    "gemma3": replace(_GEMMA, qk_norm="head", default_period=6),
    "gemma3_text": replace(_GEMMA, qk_norm="head", default_period=6),
    "gemma4_text": replace(_GEMMA, qk_norm="head", default_period=6),
    "phi": replace(_CLASSIC, norms=1),
    "phi3": _PLAIN,
    "phimoe": Family(qkv_bias=True, out_bias=True, norm_bias=True),
    "gpt2": replace(_CLASSIC, tied=True, learned_positions=True),
    "gpt_bigcode": replace(_CLASSIC, tied=True, learned_positions=True),
    "opt": replace(_CLASSIC, tied=True, learned_positions=True),
    "gpt_neo": Family(
        gated=False, out_bias=False, mlp_bias=True, norm_bias=True, tied=True, learned_positions=True
    ),
    "xglm": replace(_CLASSIC, tied=True),
    "jais2": _CLASSIC,
    "bloom": replace(_CLASSIC, tied=True),
    "gpt_neox": _CLASSIC,
    "gptj": Family(gated=False, mlp_bias=True, norms=1, norm_bias=True),
    "codegen": Family(gated=False, mlp_bias=True, norms=1, norm_bias=True),
    "mpt": Family(gated=False, tied=True),
    "RefinedWeb": Family(gated=False, tied=True, norms=1, norm_bias=True),
    "RefinedWebModel": Family(gated=False, tied=True, norms=1, norm_bias=True),
    "falcon": Family(gated=False, tied=True, norms=1, norm_bias=True),
    "starcoder2": replace(_CLASSIC, tied=True),
    "stablelm": Family(norm_bias=True),
    "persimmon": replace(_CLASSIC, qk_norm="head"),
    "nemotron": Family(gated=False, norm_bias=True),
    "nemotron_h": Family(gated=False, norms=1, head_dim=128),
    "arcee": Family(gated=False),
    "apertus": Family(gated=False, qk_norm="head"),
    "olmo": Family(norms=0),
    "olmo2": Family(qk_norm="all"),
    "olmo3": Family(qk_norm="all", default_period=4),
    "olmoe": Family(qk_norm="all"),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, default_period=4),
    "command-r": _COHERE,
    "glm": Family(qkv_bias=True, head_dim=128),
    "glm4": Family(qkv_bias=True, norms=4, head_dim=128),
    "glm4_moe": Family(qkv_bias=True),
    "chatglm": Family(qkv_bias=True),
    "gpt_oss": Family(qkv_bias=True, out_bias=True, default_period=2, head_dim=64),
    "internlm": Family(qkv_bias=True, out_bias=True),
    "dbrx": Family(norm_bias=False),
    "smollm3": _TIED,
    "exaone4": Family(qk_norm="head"),
    "exaone_moe": Family(qk_norm="head"),
    "hunyuan_v1_dense": Family(qk_norm="head", tied=True),
    "hunyuan_v1_moe": Family(qk_norm="head", tied=True),
    "hunyuan": Family(tied=True),
    "ernie4_5": Family(tied=True, head_dim=128),
    "ernie4_5_moe": _TIED,
    "seed_oss": Family(qkv_bias=True, head_dim=128),
    "minimax_m2": Family(qk_norm="all", head_dim=128),
    "lfm2": Family(tied=True, qk_norm="head"),
    "lfm2_moe": Family(tied=True, qk_norm="head"),
    "mamba": Family(tied=True, norms=1),
    "mamba2": Family(tied=True, norms=1),
    "falcon_mamba": Family(tied=True, norms=1),
    "dots1": _QUERY_NORM,
    "bailing_moe_v2": _QUERY_NORM,
    "granite": _PLAIN,
    "granitemoe": _PLAIN,
    "granitemoehybrid": _PLAIN,
    "granitemoeshared": _PLAIN,
    "afmoe": Family(norms=4, qk_norm="head", query_gate=True, default_period=4, head_dim=128),
    "laguna": _QUERY_NORM,
    "minicpm": _TIED,
    "minicpm3": _TIED,
    "nanochat": Family(gated=False, norms=0),
    "vaultgemma": Family(tied=True, head_dim=256, default_period=2),
    "cohere2_moe": replace(_COHERE, default_period=4),
    "gemma3n_text": replace(_GEMMA, qk_norm="head", default_period=5),
    "bamba": _PLAIN,
    "deepseek": _PLAIN,
    "deepseek_v2": _PLAIN,
    "deepseek_v3": _PLAIN,
    "deepseek_v32": _PLAIN,
    "deepseek_v4": _PLAIN,
    "longcat_flash": _PLAIN,
    "falcon_h1": _PLAIN,
    "glm4_moe_lite": _PLAIN,
    "glm_moe_dsa": _PLAIN,
    "internlm2": _PLAIN,
    "jamba": _PLAIN,
    "kimi_k2": _PLAIN,
    "kimi_k25": _PLAIN,
    "kimi_linear": _PLAIN,
    "llama4_text": Family(head_dim=128),
    "mimo_v2_flash": _PLAIN,
    "minimax": _PLAIN,
    "minimax_m1": _PLAIN,
    "minimax_text_01": _PLAIN,
    "baichuan": _PLAIN,
    "nemotron-nas": _PLAIN,
    "glm4v_text": Family(qkv_bias=True, norms=4, head_dim=128),
    "glm4v_moe_text": Family(qkv_bias=True),
    "mistral3": _PLAIN,
    "ministral3": _PLAIN,
    "exaone": _PLAIN,
    "solar_open": _PLAIN,
    "hy_v3": _QUERY_NORM,
    "olmo_hybrid": Family(qk_norm="all"),
    "diffllama": _PLAIN,
    "flex_olmo": Family(qk_norm="all"),
    "orion": Family(norm_bias=True),
    "helium": Family(head_dim=128),
}

ENCODERS = frozenset({
    "albert", "bart", "beit", "bert", "bert-generation", "big_bird", "blip", "blip-2", "camembert", "clip",
    "clip_text_model", "clip_vision_model", "convnext", "data2vec-text", "deberta", "deberta-v2", "deit",
    "detr", "dinov2", "distilbert", "electra", "ernie", "git", "hubert", "led", "longformer", "longt5",
    "m2m_100", "marian", "mbart", "megatron-bert", "modernbert", "moshi", "mpnet", "mt5", "nomic_bert",
    "pegasus", "rembert", "resnet", "roberta", "roberta-prelayernorm", "roc_bert", "roformer", "segformer",
    "siglip", "siglip2", "siglip_vision_model", "speecht5", "swin", "t5", "trocr", "umt5", "vit", "wav2vec2",
    "whisper", "xlm", "xlm-roberta", "xlm-roberta-xl", "xlnet", "xmod",
})  # fmt: skip
"""Architectures that keep no decoder KV of their own, or only beside an encoder: KV cannot be handed over."""

UNSIZED = frozenset({
    "blt", "ctrl", "doge", "hrm_text", "inkling_text", "jetmoe", "mllama",
    "openai-gpt", "recurrent_gemma", "rwkv", "rwkv6", "rwkv7", "xlstm", "zamba", "zamba2",
})  # fmt: skip
"""Architectures whose layers or caches follow rules of their own that no key states."""


def family_of(model_type: str) -> Family:
    """The habits of a `model_type`, with or without its `_text`; an unknown one is taken for a Llama-like decoder."""
    return FAMILIES.get(model_type) or FAMILIES.get(model_type.removesuffix("_text"), _PLAIN)
