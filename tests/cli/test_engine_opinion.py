"""`validate` with a vLLM at hand: its complaint stands at the user's line, its version is compared, its device is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from disaggc.cli.engine_opinion import blamed
from disaggc.ir.plan import Argument, Literally

SPEC = """\
version: 1
cluster:
  fabric: {type: infiniband, speed_per_nic: 400Gbit}
  nodes: {h100: {hosts: {n: 10.0.0.1}, accelerator: {type: h100-sxm, per_node: 2}, nics: {per_node: 2}}}
services:
  chat:
    model: {id: meta-llama/Llama-3.1-8B, weights: /models/llama}
    workload: {w: {input_tokens: 1024, output_tokens: 256, rate: 1/s}}
    engine:
      vllm: 0.33.0
      command: /opt/vllm/bin/vllm
      settings:
        max-logprobs: 7
        max-model-len: 4096
    constraints: {mode: disaggregated, prefill: {tp: [1]}, decode: {tp: [1]}}
    proxy: {api_key: {env: KEY}}
target: systemd
"""
ANSWER = """\
#!{python}
import json, sys
lines = json.load(sys.stdin)["lines"]
json.dump([one["words"] for one in lines], open("asked.json", "w"))
assert all("--max-logprobs" in one["words"] and one["words"][0] == "/models/llama" for one in lines)
print(json.dumps({{"version": "{version}", "verdicts": [{{"stage": "{stage}", "message": {message!r}}} for _ in lines]}}))
"""


def validated(folder, *words: str, stage: str = "ok", message: str = "", version: str = "0.33.0+cpu"):
    (folder / "disaggc.yaml").write_text(SPEC)
    python = folder / "python3"
    python.write_text(ANSWER.format(python=sys.executable, stage=stage, message=message, version=version))
    python.chmod(0o755)
    start = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", start, "validate", "--format", "json", *words],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "DISAGGC_VLLM_PYTHON": str(python)},
    )  # fmt: skip
    found = json.loads(done.stdout)["diagnostics"] if done.stdout else []
    return done, [one for one in found if one["code"] in ("DGC240", "DGC241")]


def test_a_complaint_stands_at_the_line_that_caused_it(tmp_path):
    message = "max_logprobs: Input should be greater than or equal to -1"
    done, found = validated(tmp_path, stage="config", message=message)
    assert done.returncode == 1, done.stderr
    assert [one["code"] for one in found] == ["DGC240"] * 2, "one for prefill, one for decode"
    assert {one["line"] for one in found} == {13}
    assert message in found[0]["message"]


def test_every_command_line_is_asked_about(tmp_path):
    colocated = ("--set", "services.chat.constraints={mode: colocated, colocated: {tp: [1], replicas: 2}}")
    done, _ = validated(tmp_path, *colocated)
    assert done.returncode == 0, done.stdout
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert len({words[words.index("--port") + 1] for words in asked}) == len(asked) == 2


def test_what_depends_on_the_device_is_not_taken(tmp_path):
    done, found = validated(tmp_path, stage="config", message="fp8 is not supported on this platform")
    assert (done.returncode, found) == (0, [])


def test_another_version_is_said_aloud(tmp_path):
    done, found = validated(tmp_path, version="0.32.0")
    assert done.returncode == 0
    assert [(one["code"], one["severity"], one["line"]) for one in found] == [("DGC241", "warning", 10)]


def test_nobody_is_asked_when_told_not_to(tmp_path):
    assert validated(tmp_path, "--no-engine-parser", stage="parse", message="--max-logprobs")[1] == []


def test_a_vllm_that_fails_is_a_note(tmp_path):
    done, found = validated(tmp_path, stage="ok", version='"')
    assert (done.returncode, found) == (0, [])
    assert "was not asked" in done.stderr


@pytest.mark.parametrize(
    ("message", "flag"),
    [
        ("unrecognized arguments: --seed 3", "--seed"),
        ("max_num_batched_tokens (3) is smaller than max_num_seqs", "--max-num-batched-tokens"),
        ("nothing that is named", None),
        ("Value error, enable_prefix_caching wants more", "--no-enable-prefix-caching"),
    ],
)
def test_the_argument_that_is_named_is_blamed(message, flag):
    flags = ("--seed", "--max-num-seqs", "--max-num-batched-tokens", "--no-enable-prefix-caching", "--max")
    found = blamed([Argument(flag=name, value=Literally(value="1")) for name in flags], message)
    assert (found.flag if found else None) == flag


def test_the_users_setting_is_blamed_before_the_compilers():
    mine = Argument(
        flag="--seed", value=Literally(value="1"), because=("services.chat.engine.settings.seed",)
    )
    own = Argument(flag="--max-num-batched-tokens", value=Literally(value="1"))
    assert blamed([own, mine], "seed and max_num_batched_tokens do not fit") is mine
