from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from disaggc.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def printed(capsys, *arguments: str) -> dict:
    assert main(["catalog", *arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


KINDS = {"accelerators": 20, "models": 15, "engines": 3, "connectors": 4, "fabrics": 4}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_list_is_complete_and_sourced(kind, capsys):
    document = printed(capsys, kind)
    schema = json.loads((ROOT / "schemas" / f"catalog-{kind}.v1.json").read_text())
    jsonschema.validate(document, schema)
    assert len(document[kind]) >= KINDS[kind]
    assert all(item["source"] for item in document[kind])
    assert main(["catalog", kind]) == 0
    text = capsys.readouterr().out
    first = document[kind][0]
    assert next(first[key] for key in ("id", "version", "name", "type") if key in first) in text


def test_a_model_by_id(capsys):
    document = printed(capsys, "models", "deepseek-ai/DeepSeek-R1")
    jsonschema.validate(document, json.loads((ROOT / "schemas" / "catalog-model.v1.json").read_text()))
    assert document["schema"] == "disaggc.catalog-model/v1"
    assert document["attention"] == "mla"
    assert document["kv_bytes_per_token"] == 70_272
    assert document["layers"] == 61
    assert abs(document["parameters"] / 671.03e9 - 1) < 0.005


def test_a_model_by_its_config(tmp_path, capsys):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 4096,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 14336,
                "vocab_size": 128256,
                "max_position_embeddings": 131072,
                "torch_dtype": "bfloat16",
                "tie_word_embeddings": False,
            }
        )
    )
    document = printed(capsys, "models", str(config))
    assert document["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2
    assert document["parameters"] == pytest.approx(8.03e9, rel=0.005)
    assert document["source"] == str(config)


@pytest.mark.parametrize("name", ["nobody/nothing", "missing.json", "."])
def test_an_unknown_model_is_a_mistake_with_a_way_out(name, capsys):
    assert main(["catalog", "models", name]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error[DGC")


def test_a_misspelt_model_is_named_with_its_code(capsys):
    assert main(["catalog", "models", "meta-llama/Llama-3.3-70B-Instuct"]) == 1
    told = capsys.readouterr().err
    assert "DGC202 unknown-model" in told
    assert "did you mean `meta-llama/Llama-3.3-70B-Instruct`?" in told


def test_bytes_are_whole_numbers(capsys):
    found = printed(capsys, "models", "deepseek-ai/DeepSeek-R1")
    assert isinstance(found["weight_bytes"], int)
    assert isinstance(found["kv_bytes_per_token"], int)


def test_configs_of_the_reference_data(shared_data, capsys):
    known = json.loads(shared_data("data/vllm/models.json").read_text())
    for path in sorted(shared_data("data/models").glob("*.config.json")):
        name = path.name.removesuffix(".config.json")
        if name not in known:
            continue
        document = printed(capsys, "models", str(path))
        assert document["parameters"] == pytest.approx(known[name]["params"]["total"], rel=0.005), name


def test_json_goes_to_jq_without_colour():
    code = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "catalog", "fabrics", "--format", "json", "--color", "always"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (None, "DGC101", "does not exist"),
        (b"\xff\xfe{", "DGC101", "UTF-16"),
        (b"\x00", "DGC101", "binary"),
        (b"[]", "DGC203", "object"),
    ],
)
def test_a_config_that_cannot_be_used_is_a_finding_in_json_too(tmp_path, capsys, content, code, says):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_bytes(content)
    assert main(["catalog", "models", str(path), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, json.loads((ROOT / "schemas" / "diagnostics.v1.json").read_text()))
    (found,) = document["diagnostics"]
    assert found["code"] == code
    assert says in found["message"]


def test_a_pipe_named_like_a_config_is_not_waited_for(tmp_path, capsys):
    os.mkfifo(tmp_path / "config.json")
    assert main(["catalog", "models", str(tmp_path / "config.json")]) == 1
    assert "not a regular file" in capsys.readouterr().err
