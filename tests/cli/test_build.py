from __future__ import annotations

import json
from pathlib import Path

import pytest

from disaggc.cli.main import main
from tests.examples.targets import copied


@pytest.fixture
def five(tmp_path):
    return copied("deepseek-r1-mi300x", tmp_path / "five")


def test_without_a_target_there_are_no_files(five, tmp_path, capsys):
    five.write_text(five.read_text().replace("target: systemd\n", ""))
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "--format", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (found["code"], found["file"]) == ("DGC601", str(five))
    assert not (tmp_path / "out").exists()
    assert main(["plan", str(five)]) == 0


def test_a_foreign_file_stops_the_build(five, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["build", str(five), "--out", str(out), "-q"]) == 0
    capsys.readouterr()
    other = tmp_path / "other"
    first = next(p for p in sorted(out.rglob("*")) if p.is_file() and p.name != ".disaggc-build.json")
    mine = other / first.relative_to(out)
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert main(["build", str(five), "--out", str(other)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "was not written by disaggc" in captured.err
    assert [p for p in other.rglob("*") if p.is_file()] == [mine]


def test_another_target_in_the_same_directory_leaves_nothing_of_the_first(five, tmp_path):
    out = tmp_path / "out"
    assert main(["build", str(five), "--out", str(out), "-q"]) == 0
    assert main(["build", str(five), "--out", str(out), "--target", "compose", "-q"]) == 0
    assert not list(out.rglob("*.service"))
    assert list(out.rglob("compose.yaml"))


def test_warnings_are_denied_on_request(five, tmp_path):
    text = five.read_text().replace("      api_key: {env: DISAGGC_API_KEY}\n", "")
    five.write_text(text)
    assert main(["validate", str(five)]) == 0
    assert main(["validate", str(five), "--deny", "warnings"]) == 1
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "--deny", "warnings"]) == 1
    assert not (tmp_path / "out").exists()
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "--deny", "warnings", "-q"]) == 1


def test_a_suppressed_warning_is_not_denied(five):
    text = five.read_text().replace("      api_key: {env: DISAGGC_API_KEY}\n", "")
    text = text.replace(
        "    proxy:\n", "    proxy:  # disaggc: ignore[DGC801] only reachable inside the rack\n"
    )
    five.write_text(text)
    assert main(["validate", str(five), "--deny", "warnings"]) == 0


def test_a_read_only_checkout_still_builds(five, tmp_path, capsys, monkeypatch):
    """The lock and the record are lost, the files are not."""
    from disaggc.cli import history

    def refuse(path: Path, _text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(history, "write_atomically", refuse)
    assert main(["build", str(five), "--out", str(tmp_path / "out")]) == 0
    assert "not recorded" in capsys.readouterr().err
    assert (tmp_path / "out").is_dir()


def test_a_broken_lock_is_an_error_with_its_place(five, capsys):
    lock = five.with_name("disaggc.lock")
    lock.write_text("version: 1\n\tservices: {}\n")
    assert main(["plan", str(five), "--format", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["diagnostics"]
    assert (found["code"], found["file"], found["line"]) == ("DGC701", str(lock), 2)
    assert main(["plan", str(five), "--upgrade"]) == 0


def test_a_damaged_record_only_loses_history(five, tmp_path, capsys):
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "-q"]) == 0
    for record in (five.parent / ".disaggc").glob("*.json"):
        record.write_text('{"schema": "disaggc.last-build/v1", "facets": 3}')
    capsys.readouterr()
    assert main(["plan", str(five), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"] == []


def test_infeasible_is_3_and_says_what_to_relax(five, capsys):
    slow = "services.chat.workload.reasoning.objectives.ttft_p50=1ms"
    assert main(["plan", str(five), "--set", slow, "--format", "json"]) == 3
    document = json.loads(capsys.readouterr().out)
    assert document["solver"]["status"] == "infeasible"
    assert {d["code"] for d in document["diagnostics"]} == {"DGC501"}
    assert all(d["help"] for d in document["diagnostics"])


def test_state_holds_no_value_of_the_spec(five, tmp_path):
    value = "hunter2-not-for-the-state"
    change = f"services.chat.engine.env.HF_HOME=/{value}"
    assert main(["build", str(five), "--out", str(tmp_path / "out"), "--set", change]) == 0
    state = five.parent / ".disaggc"
    assert (state / ".gitignore").read_text() == "*\n"
    assert all(value not in path.read_text() for path in state.iterdir())
    assert value not in five.with_name("disaggc.lock").read_text()
