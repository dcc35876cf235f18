"""The same plan gives the same bytes whatever order a process happens to give its hashes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from disaggc.emit.api import TargetChoice, emit
from disaggc.spec.model import ComposeTarget, KubernetesTarget, SystemdTarget
from tests.emit.plans import Texts, flexible
plan = flexible(Texts(env=(("B", "1"), ("A", "2")), secrets=(("Z", "z"), ("Y", "y"))))
for settings in (SystemdTarget(), ComposeTarget(), KubernetesTarget(inference_pool=True, rdma_resource="a/b")):
    for artifact in emit(plan, TargetChoice(settings)).value.artifacts:
        print(artifact.path, artifact.mode, artifact.text)
"""


@pytest.mark.parametrize("place", [ROOT, Path("/")])
def test_two_hash_seeds_and_two_folders(place):
    seen = set()
    for seed in ("0", "12345"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=place, env=env, capture_output=True, check=True
        )
        assert len(done.stdout) > 10_000
        seen.add(hashlib.sha256(done.stdout).hexdigest())
    assert len(seen) == 1
