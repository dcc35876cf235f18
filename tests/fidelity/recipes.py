"""What published launch scripts set and tables of results leave out. Knows no model of performance."""

from __future__ import annotations

_FP8_KV = {"b200", "gb200", "b300", "gb300", "mi355x"}
"""Accelerators whose scripts ask for an FP8 cache wherever weights take a byte or less (SemiAnalysisAI/InferenceX:
single_node, srt-slurm-recipes, amd_utils); FP4 checkpoints of ModelOpt ask for it by themselves."""
_FP8_KV_HOPPER = {
    ("h100", "llama-3.1-70b"),
    ("h200", "llama-3.1-70b"),
    ("h200", "qwen3.5-397b-a17b"),
}
"""Where that harness's scripts ask for one on Hopper when the rows were measured; those of DeepSeek-R1, GLM-5, gpt-oss,
Kimi-K2 and MiniMax-M2.5 did not."""
_A_BYTE_OR_LESS = {"fp8", "fp4", "nvfp4", "mxfp4"}


def kv_bytes(model: str, gpu: str, precision: str, *, engine: str, source: str) -> float:
    """Bytes that one element of the KV cache took in a source's runs of this model, accelerator, weights and engine."""
    card, weights = gpu.lower(), precision.lower().split("/")[0]
    if weights not in _A_BYTE_OR_LESS:
        return 2.0
    asked = source.startswith("inferencex_via") and (card, model.rsplit("/", 1)[-1].lower()) in _FP8_KV_HOPPER
    asked = asked or (weights == "fp8" and "trt" in engine.lower())
    return 1.0 if asked or card in _FP8_KV else 2.0
