"""The promises that a user can hold disaggc to, on the examples."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from disaggc.catalog.load import Catalog
from disaggc.cli.main import main
from tests.examples.targets import ROOT, copied

PRODUCT = Path(__file__).with_name("product.yaml")
START = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"


def tree(directory: Path) -> dict[str, bytes]:
    return {
        p.relative_to(directory).as_posix(): p.read_bytes()
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


def planned(capsys, *arguments: str, code: int = 0) -> dict:
    assert main(["plan", *arguments, "--format", "json", "--refresh=false"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def five(tmp_path):
    return copied("deepseek-r1-mi300x", tmp_path / "five")


@pytest.mark.parametrize("target", ["kubernetes", "systemd"])
def test_the_documented_spec_compiles_unchanged(target, tmp_path, capsys):
    spec = tmp_path / "disaggc.yaml"
    spec.write_bytes(PRODUCT.read_bytes())
    assert (
        main(["build", str(spec), "--target", target, "--out", str(tmp_path / "out"), "--format", "json"])
        == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document["target"] == target
    assert {file["path"] for file in document["files"]} == set(tree(tmp_path / "out")) - {
        ".disaggc-build.json"
    }


def test_same_bytes_whatever_the_process(tmp_path):
    """Two hash seeds, two working directories, two umasks: one tree."""
    trees = []
    for run, (seed, umask) in enumerate((("1", 0o022), ("2", 0o077))):
        place = tmp_path.joinpath(f"run{run}", *["deeper"] * run)
        copied("deepseek-r1-mi300x", place / "spec")
        subprocess.run(
            [sys.executable, "-c", START, "build", "spec/disaggc.yaml", "--out", "out", "-q"],
            cwd=place,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            umask=umask,
            check=True,
        )
        trees.append(tree(place / "out"))
    assert trees[0] == trees[1]


def test_building_again_changes_nothing(five, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["build", str(five), "--out", str(out), "-q"]) == 0
    before = tree(out)
    assert (five.parent / "disaggc.lock").is_file()
    capsys.readouterr()
    assert main(["build", str(five), "--out", str(out), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {file["state"] for file in document["files"]} == {"same"}
    assert tree(out) == before


def test_plan_after_build_has_no_changes(five, tmp_path, capsys):
    first = planned(capsys, str(five), "--detailed-exitcode", code=2)
    assert {change["action"] for change in first["changes"]} == {"create"}
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "-q"]) == 0
    capsys.readouterr()
    again = planned(capsys, str(five), "--detailed-exitcode")
    assert again["changes"] == []
    assert again["fingerprint"] == first["fingerprint"]
    assert again["solver"]["status"] == "locked"


def test_a_changed_field_is_the_cause_of_what_it_changes(five, tmp_path, capsys):
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "-q"]) == 0
    capsys.readouterr()
    document = planned(capsys, str(five), "--set", "services.chat.proxy.port=9000")
    assert {change["address"] for change in document["changes"]} == {"chat/proxy/0"}
    assert document["changes"][0]["fields"] == ["services.chat.proxy.port"]


def test_the_lock_alone_is_enough_to_see_that_nothing_moves(five, tmp_path, capsys):
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "-q"]) == 0
    shutil.rmtree(five.parent / ".disaggc")
    capsys.readouterr()
    assert planned(capsys, str(five))["changes"] == []


def test_a_plan_writes_nothing_but_its_file(five, tmp_path, capsys):
    before = tree(five.parent)
    saved = tmp_path / "saved.json"
    document = planned(capsys, str(five), "--out", str(saved))
    assert tree(five.parent) == before
    assert json.loads(saved.read_text())["fingerprint"] == document["fingerprint"]


def test_with_a_lock_new_facts_move_nothing_and_the_gain_is_named(five, tmp_path, capsys, monkeypatch):
    forced = five.with_name("forced.yaml")
    forced.write_text("services: {chat: {constraints: {prefill: {replicas: 2}, decode: {replicas: 3}}}}\n")
    assert main(["build", str(five), str(forced), "--out", str(tmp_path / "out"), "-q"]) == 0
    capsys.readouterr()
    first = planned(capsys, str(five), str(forced))["services"]["chat"]
    before = tree(tmp_path)
    _faster_memory(monkeypatch)
    again = planned(capsys, str(five))
    kept = again["services"]["chat"]
    assert again["solver"]["status"] == "locked"
    assert (kept["ratio"], kept["pools"]) == (first["ratio"], first["pools"])
    assert kept["predicted"]["output_tok_per_s"] != first["predicted"]["output_tok_per_s"]
    (gain,) = [d for d in again["diagnostics"] if d["code"] == "DGC702"]
    assert "--upgrade" in gain["help"]
    upgraded = planned(capsys, str(five), "--upgrade")
    assert upgraded["services"]["chat"]["ratio"] == {"prefill": 1, "decode": 4}
    assert {change["action"] for change in upgraded["changes"]} >= {"create", "remove"}
    assert tree(tmp_path) == before


def test_facts_alone_are_named_as_the_cause(five, tmp_path, capsys, monkeypatch):
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "-q"]) == 0
    capsys.readouterr()
    _smaller_memory(monkeypatch)
    document = planned(capsys, str(five))
    assert document["changes"]
    assert {change["cause"] for change in document["changes"]} == {"changed catalog facts"}
    assert {change["action"] for change in document["changes"]} == {"update"}


def _faster_memory(monkeypatch):
    _corrected(monkeypatch, lambda facts: replace(facts, memory_bandwidth=facts.memory_bandwidth * 1.05))


def _smaller_memory(monkeypatch):
    _corrected(monkeypatch, lambda facts: replace(facts, memory_bytes=facts.memory_bytes * 0.97))


def _corrected(monkeypatch, correct):
    """A catalog that has learnt better."""
    real = Catalog.accelerator

    def accelerator(self, name):
        facts = real(self, name)
        return facts and correct(facts)

    monkeypatch.setattr(Catalog, "accelerator", accelerator)
