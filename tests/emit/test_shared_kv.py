"""A degree by which ranks share KV (dcp) reaches the command line of the engines that have it, on every target."""

from __future__ import annotations

import re

import pytest

from disaggc.spec.model import ComposeTarget, KubernetesTarget, LocalTarget, SystemdTarget
from disaggc.verify.api import verify
from tests.emit.emitted import files
from tests.rules.compiled import sound_plan
from tests.rules.marked import findings

LITE = "model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/lite}"
SHARED = f"""
services:
  chat:
    {LITE}
    constraints: {{mode: disaggregated, prefill: {{tp: [8]}}, decode: {{tp: [8], dcp: [8]}}}}
"""
COPIED = SHARED.replace(", dcp: [8]", "")
TARGETS = {
    "systemd": SystemdTarget(run_as="vllm"),
    "compose": ComposeTarget(),
    "kubernetes": KubernetesTarget(rdma_resource="rdma/ib"),
    "local": LocalTarget(),
}
HERE = "\ntargets: {local: {}}\ntarget: local\n"
"""Target local places on this machine alone, so its plan is one of its own."""
_FLAG = re.compile(r"--decode-context-parallel-size[\s\"',\\-]+(\d+)")


@pytest.mark.parametrize("target", TARGETS)
def test_decode_engines_are_told_and_prefill_engines_are_not(target: str):
    plan, _ = sound_plan(SHARED + HERE * (target == "local"))
    decodes = sum(len(pool.replicas) for pool in plan.services[0].pools if pool.role.value == "decode")
    emitted = {path: artifact.text for path, artifact in files(plan, TARGETS[target]).items()}
    told = {path: _FLAG.findall(text) for path, text in emitted.items() if "context-parallel" in text}
    assert [size for sizes in told.values() for size in sizes] == ["8"] * decodes
    assert not any("prefill" in path for path in told)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_written_where_nothing_is_shared(target: str):
    plan, _ = sound_plan(COPIED + HERE * (target == "local"))
    for artifact in files(plan, TARGETS[target]).values():
        assert "context-parallel" not in artifact.text
        assert "dcp" not in artifact.text


def test_the_checker_sizes_the_shared_pool_itself_and_sees_a_degree_that_was_not_asked_for():
    plan, resolved = sound_plan(SHARED)
    assert not verify(plan, resolved)
    _, other = findings(f"{SHARED}\ncluster: {{nodes: {{h100: {{accelerator: {{type: b200}}}}}}}}")
    assert other is not None
    assert any("which FLASHINFER_MLA, taken on b200" in d.message for d in verify(plan, other))
    _, copied = sound_plan(COPIED)
    told = [d.message for d in verify(plan, copied)]
    assert any("has dcp 8 in chat/decode, the spec allows 1" in message for message in told)
