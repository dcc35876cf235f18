from __future__ import annotations

import pytest

from tests.fidelity.recipes import kv_bytes

HARNESS = "inferencex_via_aic_agg"


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "engine", "source", "each"),
    [
        ("Qwen3.5-397B-A17B", "GB200", "nvfp4", "vLLM", "vllm_qwen35_sweep", 1),
        ("deepseek-ai/DeepSeek-V3", "B200", "fp8", "sglang", HARNESS, 1),
        ("Qwen/Qwen3.5-397B-A17B", "B200", "bf16", "sglang", HARNESS, 2),
        ("moonshotai/Kimi-K2.5", "B200", "int4", "vllm", HARNESS, 2),
        ("deepseek-ai/DeepSeek-R1", "H200", "fp8", "sglang", HARNESS, 2),
        ("deepseek-ai/DeepSeek-R1", "H200", "fp8", "trtllm 1.1", HARNESS, 1),
        ("openai/gpt-oss-120b", "H200", "fp4", "trtllm", HARNESS, 2),
        ("meta-llama/Llama-3.1-70B", "H100", "fp8", "vllm", HARNESS, 1),
        ("meta-llama/Llama-3.1-70B", "H100", "fp8", "vllm", "elsewhere", 2),
        ("MiniMaxAI/MiniMax-M2.5", "H200", "fp8", "vllm", HARNESS, 2),
    ],
)
def test_the_cache_has_the_precision_that_launch_scripts_ask_for(model, gpu, precision, engine, source, each):
    assert kv_bytes(model, gpu, precision, engine=engine, source=source) == each
