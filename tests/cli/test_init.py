from __future__ import annotations

import json
from pathlib import Path

import pytest

from disaggc.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/disaggc.yaml"))


def test_starter_is_valid_as_it_is(tmp_path, capsys):
    assert main(["init", str(tmp_path / "new")]) == 0
    assert main(["validate", str(tmp_path / "new" / "disaggc.yaml")]) == 0
    assert "valid: 1 service" in capsys.readouterr().out


@pytest.mark.parametrize("example", ["starter", "llama-70b-h100-k8s"])
def test_a_spec_for_kubernetes_can_be_tried_here(example, tmp_path, capsys):
    """What `init` writes, on engine doubles, with the proxy's key from the one variable it can come from here."""
    assert main(["init", str(tmp_path), "--example", example]) == 0
    sim = ("--set", "targets.local={engine: sim}") if example != "starter" else ()
    out = tmp_path / "try"
    spec = str(tmp_path / "disaggc.yaml")
    assert main(["build", spec, "--target", "local", *sim, "--out", str(out)]) == 0, capsys.readouterr().err
    programs = json.loads((out / "stack.json").read_text())["programs"]
    (proxy,) = (one for one in programs if one["kind"] == "proxy")
    assert proxy["secrets"] == ["DISAGGC_API_KEY"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_can_be_copied(name, tmp_path, capsys):
    assert main(["init", str(tmp_path), "--example", name, "--format", "json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    source = ROOT / "examples" / name
    assert {Path(path).name for path in written} == {
        path.name for path in source.iterdir() if path.is_file()
    } - {"disaggc.lock"}
    for path in written:
        assert Path(path).read_bytes() == (source / Path(path).name).read_bytes()


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "disaggc.yaml").write_text("mine")
    assert main(["init", str(tmp_path)]) == 1
    assert "exists; nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["disaggc.yaml"]
    assert (tmp_path / "disaggc.yaml").read_text() == "mine"


def test_a_readme_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "README.md").write_text("mine")
    assert main(["init", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").read_text() == "mine"
    assert (tmp_path / "disaggc.yaml").is_file()


def test_a_directory_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file" / "below")]) == 1
    assert "Traceback" not in capsys.readouterr().err
