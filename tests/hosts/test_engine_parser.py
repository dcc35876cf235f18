"""Asking an installed vLLM: a stand-in for its interpreter answers as the probe would. The real one is in testbed."""

from __future__ import annotations

import os
import sys

import pytest

from disaggc.hosts import vllm_probe
from disaggc.hosts.engine_parser import CommandLine, ProbeError, Verdict, beside, installed, judge

LINE = CommandLine(("m", "--seed", "0"), {"A": "b"}, configure=False)


def stand_in(folder, body: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!{sys.executable}\nimport json, sys\nasked = json.load(sys.stdin)\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_lines_and_verdicts_are_passed_on(tmp_path):
    python = stand_in(
        tmp_path,
        "print('noise')\nprint(json.dumps({'version': '0.33.0', 'verdicts': "
        "[{'stage': 'parse', 'message': ' '.join(one['words']) + one['env']['A']} for one in asked['lines']]}))",
    )
    judged = judge(python, [LINE, LINE], os.environ)
    assert judged.version == "0.33.0"
    assert judged.verdicts == (Verdict("parse", "m --seed 0b"),) * 2


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sys.exit('no vllm here')", "no vllm here"),
        ("print('{}')", "could not be asked"),
        ("print('[1]')", "could not be asked"),
        ("print(json.dumps({'version': '1', 'verdicts': []}))", "judged 0 of 1"),
    ],
)
def test_a_vllm_that_cannot_be_asked_is_said(tmp_path, body, said):
    with pytest.raises(ProbeError, match=said):
        judge(stand_in(tmp_path, body), [LINE], os.environ)


def test_an_interpreter_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ProbeError, match="cannot be run"):
        judge(str(tmp_path / "none"), [LINE], os.environ)


def test_only_a_chosen_vllm_is_asked_unbidden(tmp_path):
    assert installed({"DISAGGC_VLLM_PYTHON": "/x/python"}) == "/x/python"
    assert installed({}) in (None, sys.executable)
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    (tmp_path / "vllm").chmod(0o755)
    assert beside(str(tmp_path / "vllm")) is None
    python = stand_in(tmp_path, "")
    assert beside(str(tmp_path / "vllm")) == python
    assert beside(str(tmp_path / "nothing")) is None


def test_the_probe_keeps_the_whole_complaint_and_not_the_usage():
    text = (
        "usage: vllm serve [options]\n  --a\nvllm serve: error: argument --compilation-config: 1 validation error\n"
        "no-such-key\n  Unexpected keyword argument\n    For further information visit https://example.org\n"
    )
    assert vllm_probe.said_after_usage(text) == (
        "vllm serve: error: argument --compilation-config: 1 validation error no-such-key Unexpected keyword argument"
    )
    assert vllm_probe.said_after_usage("") == "refused without a word"
