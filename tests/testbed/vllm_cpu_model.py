"""Writes a tiny Llama with seeded random weights and a byte tokenizer; run by an interpreter that has torch.

    python vllm_cpu_model.py OUT_DIR

Query, key and embedding weights are wide, so that greedy output depends on the whole context: tokens computed from
missing or foreign KV differ.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, WIDTH = 128, 256, 2, 4, 2, 32
SPECIAL = ["<s>", "</s>", "<pad>"]


def write_tokenizer(out: pathlib.Path) -> int:
    alphabet = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={text: number for number, text in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(out / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>",
        "model_max_length": 2048, "chat_template": "{% for m in messages %}{{ m['content'] }}\n{% endfor %}",
    }  # fmt: skip
    (out / "tokenizer_config.json").write_text(json.dumps(settings))
    return len(alphabet)


def weights(vocabulary: int) -> dict[str, torch.Tensor]:
    dice = torch.Generator().manual_seed(20)

    def drawn(rows: int, columns: int, spread: float = 0.15) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=dice) * spread).to(torch.bfloat16)

    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    found = {
        "model.embed_tokens.weight": drawn(vocabulary, HIDDEN, 1.0),
        "lm_head.weight": drawn(vocabulary, HIDDEN),
        "model.norm.weight": ones.clone(),
    }
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        found |= {
            f"{name}.self_attn.q_proj.weight": drawn(HEADS * WIDTH, HIDDEN, 0.3),
            f"{name}.self_attn.k_proj.weight": drawn(KV_HEADS * WIDTH, HIDDEN, 0.3),
            f"{name}.self_attn.v_proj.weight": drawn(KV_HEADS * WIDTH, HIDDEN),
            f"{name}.self_attn.o_proj.weight": drawn(HIDDEN, HEADS * WIDTH),
            f"{name}.mlp.gate_proj.weight": drawn(INNER, HIDDEN),
            f"{name}.mlp.up_proj.weight": drawn(INNER, HIDDEN),
            f"{name}.mlp.down_proj.weight": drawn(HIDDEN, INNER),
            f"{name}.input_layernorm.weight": ones.clone(),
            f"{name}.post_attention_layernorm.weight": ones.clone(),
        }
    return found


def main() -> None:
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    vocabulary = write_tokenizer(out)
    save_file(weights(vocabulary), str(out / "model.safetensors"), metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": WIDTH,
        "vocab_size": vocabulary, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (out / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
