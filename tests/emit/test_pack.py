"""Target packs hold what their manifest lists, and templates place only what a view has."""

from __future__ import annotations

import shutil

import jinja2
import pytest
from pydantic import ValidationError

from disaggc.emit.api import TargetChoice, emit
from disaggc.emit.pack import load_pack
from disaggc.resources import shipped
from disaggc.spec.model import ComposeTarget, KubernetesTarget, SystemdTarget
from tests.emit.plans import PLANS, five_nodes

KINDS = ("compose", "kubernetes", "local", "systemd")
PARTS_OF_OTHERS = {"meta.j2", "pod.j2"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_template_is_listed_and_there(kind):
    pack = load_pack(kind)
    listed = {rule.template for rule in pack.manifest.files.values() if rule.template}
    there = {path.name for path in (shipped("targets") / kind / "templates").iterdir()}
    assert listed == there - PARTS_OF_OTHERS
    assert (shipped("targets") / kind / "README.md").exists()
    assert pack.manifest.kind == kind


def test_no_other_packs():
    assert {path.name for path in shipped("targets").iterdir()} == set(KINDS)


def test_a_template_that_names_what_is_not_there_fails(tmp_path):
    shutil.copytree(shipped("targets"), tmp_path, dirs_exist_ok=True)
    (tmp_path / "systemd/templates/engine-check.sh.j2").write_text("{{ view.nothing }}\n")
    with pytest.raises(jinja2.UndefinedError):
        load_pack("systemd", root=tmp_path).text("engine-check", object())


@pytest.mark.parametrize("line", ["kind: nothing", "surprise: 1", "files: {}"])
def test_a_bad_manifest_is_refused(tmp_path, line):
    shutil.copytree(shipped("targets"), tmp_path, dirs_exist_ok=True)
    path = tmp_path / "systemd/target.yaml"
    key = line.partition(":")[0]
    kept = [old for old in path.read_text().splitlines() if not old.startswith(key)]
    if key == "files":
        kept = [old for old in kept if not old.startswith(" ")]
    path.write_text("\n".join([*kept, line]) + "\n")
    with pytest.raises(ValidationError):
        load_pack("systemd", root=tmp_path)


def test_modes_and_costs_come_from_the_manifest():
    outcome = emit(five_nodes(), TargetChoice(SystemdTarget()))
    assert outcome.value is not None
    by_path = {artifact.path: artifact for artifact in outcome.value.artifacts}
    script = by_path["gpu-01/etc/disaggc/engine-check.sh"]
    assert (script.mode, script.on_change) == (0o755, "none")
    routing = by_path["gpu-01/etc/disaggc/chat/routing.json"]
    assert (routing.mode, routing.on_change) == (0o644, "reload")
    engine = by_path["gpu-01/etc/systemd/system/disaggc-chat-prefill@0.service"]
    assert (engine.address, engine.on_change, engine.host) == ("chat/prefill/0", "restart-replica", "gpu-01")


SETTINGS = (SystemdTarget(), ComposeTarget(), KubernetesTarget(rdma_resource="rdma/ib"))


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("name", sorted(PLANS))
def test_files_are_sorted_unique_and_the_same_every_time(name, settings):
    first, second = (emit(PLANS[name](), TargetChoice(settings)) for _ in range(2))
    assert first == second
    if first.value is None:
        assert first.diagnostics
        return
    paths = [artifact.path for artifact in first.value.artifacts]
    assert paths == sorted(set(paths))
    for artifact in first.value.artifacts:
        assert artifact.text.endswith("\n")
        assert not artifact.text.endswith("\n\n")
        assert " \n" not in artifact.text
        assert not artifact.path.startswith("/")
