"""A place that cannot be written to is one line and exit code 1, for every verb that writes."""

from __future__ import annotations

import pytest

from disaggc.cli.main import main
from disaggc.perf.calibration.schedule import schedule
from tests.perf.calibration.runs import Engine, written


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("outputs")
    assert main(["init", str(path / "spec"), "--example", "deepseek-r1-mi300x", "-q"]) == 0
    for i, run in enumerate(schedule(16384, 256)):
        written(path / "runs", f"{i}", Engine().run(run.kind, run.isl, run.osl, run.concurrency))
    (path / "file").write_text("")
    return path


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["plan", "spec/disaggc.yaml", "--refresh=false", "--out"], "absent/plan"),
        (["plan", "spec/disaggc.yaml", "--refresh=false", "--out"], "spec"),
        (["plan", "spec/disaggc.yaml", "--refresh=false", "--out"], "file/plan"),
        (["build", "spec/disaggc.yaml", "--out"], "file"),
        (["build", "spec/disaggc.yaml", "--out"], "file/tree"),
        (["calibrate", "runs", "--out"], "absent/x.yaml"),
        (["calibrate", "runs", "--out"], "spec"),
        (["calibrate", "runs", "--out"], "file/x.yaml"),
        (["init"], "file"),
        (["init"], "file/spec"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(folder, monkeypatch, capsys, words, out):
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert main([*words, out]) == 1
    said = capsys.readouterr().err
    assert "internal error" not in said
    (line,) = [line for line in said.splitlines() if line.startswith("error")]
    assert f"`{out.partition('/')[0]}" in line
