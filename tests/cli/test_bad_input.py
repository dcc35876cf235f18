"""Whatever a file holds: clear diagnostics with a place, exit 1, no traceback, no hang."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from disaggc.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
GOOD = (ROOT / "examples" / "deepseek-r1-mi300x" / "disaggc.yaml").read_text()


def findings(capsys, *arguments: str) -> list[dict]:
    assert main(["validate", *arguments, "--format", "json"]) == 1
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err + captured.out
    return json.loads(captured.out)["diagnostics"]


def line_of(text: str, part: str) -> tuple[int, int]:
    before = text[: text.index(part)]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


CASES = {
    "unknown-field": ("    proxy:\n", "    proxi: {}\n    proxy:\n", "DGC110", "proxi"),
    "wrong-unit": ("200Gbit", "200Gb", "DGC113", "200Gb"),
    "no-unit": ("speed_per_nic: 200Gbit", "speed_per_nic: 200", "DGC113", "200}"),
    "tab": ("    model:", "\tmodel:", "DGC102", "\tmodel:"),
    "duplicate-key": (
        "optimize: throughput\n",
        "optimize: throughput\noptimize: cost\n",
        "DGC103",
        "optimize: cost",
    ),
    "wrong-type": ("concurrency: 480", "concurrency: many", "DGC112", "many"),
    "unknown-accelerator": ("type: mi300x", "type: mi300", "DGC201", "mi300,"),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_mistake_in_the_example_is_found_at_its_place(name, tmp_path, capsys):
    old, new, code, place = CASES[name]
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    path = tmp_path / "disaggc.yaml"
    path.write_text(text)
    found = [d for d in findings(capsys, str(path)) if d["severity"] == "error"]
    assert [d["code"] for d in found] == [code], found
    line, column = line_of(text, place)
    assert (found[0]["file"], found[0]["line"]) == (str(path), line)
    if name != "tab":
        assert found[0]["column"] == column


def test_all_errors_come_in_one_run(tmp_path, capsys):
    text = (
        GOOD.replace("200Gbit", "200Gb")
        .replace("per_node: 8}       #", "per_node: 8}")
        .replace("rate: 2/s", "rate: 2")
    )
    text = text.replace("optimize: throughput", "optimise: throughput")
    path = tmp_path / "disaggc.yaml"
    path.write_text(text)
    found = findings(capsys, str(path))
    assert {"DGC110", "DGC113"} <= {d["code"] for d in found}
    assert sum(d["code"] == "DGC113" for d in found) == 2
    assert [d["line"] for d in found] == sorted(d["line"] for d in found)
    assert "optimize" in json.dumps(found)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + before] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
FILES = {
    "empty": b"",
    "blank": b"\n\n  \n",
    "comment-only": b"# nothing\n",
    "list": b"- a\n- b\n",
    "scalar": b"hello\n",
    "two-documents": b"version: 1\n---\nversion: 1\n",
    "binary": bytes(range(256)) * 50,
    "nul": b"version: 1\x00\n",
    "utf-16": "version: 1\n".encode("utf-16"),
    "bomb": BOMB.encode(),
    "deep": b"a: " + b"[" * 100_000,
    "tag": b"version: !!python/object/apply:os.system ['true']\n",
    "unclosed": b"version: [1\n",
    "bad-anchor": b"version: *nowhere\n",
    "merge-key": b"version: 1\n<<: {a: 1}\n",
    "long-line": b"version: " + b"9" * 1_000_000 + b"\n",
}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_that_is_no_spec(name, tmp_path, capsys):
    path = tmp_path / "disaggc.yaml"
    path.write_bytes(FILES[name])
    began = time.process_time()
    found = findings(capsys, str(path))
    assert time.process_time() - began < 5
    assert found
    assert all(d["file"] == str(path) and d["line"] >= 1 for d in found)
    assert all(len(d["message"]) < 500 for d in found)


def test_a_large_file_is_refused_without_being_read(tmp_path, capsys):
    path = tmp_path / "disaggc.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    began = time.process_time()
    (found,) = findings(capsys, str(path))
    assert time.process_time() - began < 1
    assert found["code"] == "DGC101"
    assert "MiB" in found["message"]


def test_paths_that_are_no_files(tmp_path, capsys):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "missing.yaml", tmp_path, fifo):
        (found,) = findings(capsys, str(path))
        assert (found["code"], found["file"]) == ("DGC101", str(path))


def test_a_cycle_of_from_is_named(tmp_path, capsys):
    (tmp_path / "disaggc.yaml").write_text("version: 1\ncluster: {from: a.yaml}\nservices: {}\n")
    (tmp_path / "a.yaml").write_text("from: b.yaml\n")
    (tmp_path / "b.yaml").write_text("from: a.yaml\n")
    found = findings(capsys, str(tmp_path / "disaggc.yaml"))
    assert "DGC120" in {d["code"] for d in found}
    assert any("a.yaml -> " in " ".join(d["notes"]) for d in found)


@pytest.mark.parametrize(
    "argument", ["nonsense", "a.b", "=1", "services.chat=", "nowhere.at=1", "optimize=[", "x=\x00"]
)
def test_bad_set_arguments(argument, tmp_path, capsys):
    path = tmp_path / "disaggc.yaml"
    path.write_text(GOOD)
    found = findings(capsys, str(path), "--set", argument)
    assert found
    assert all(d["file"] in ("--set", str(path)) for d in found)


@pytest.mark.parametrize("output", ["human", "json", "sarif", "github", "junit"])
def test_every_format_reports_the_mistake(output, tmp_path, capsys):
    path = tmp_path / "disaggc.yaml"
    path.write_text(GOOD.replace("200Gbit", "200Gb"))
    assert main(["validate", str(path), "--format", output]) == 1
    captured = capsys.readouterr()
    assert "DGC113" in (captured.err if output == "human" else captured.out)
    if output != "human":
        assert captured.err == ""


@pytest.mark.parametrize("verb", [["plan"], ["build", "--out", "out"], ["explain"]])
def test_other_verbs_refuse_it_too_and_write_nothing(verb, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("disaggc.yaml").write_text(GOOD.replace("200Gbit", "200Gb"))
    assert main([*verb, "disaggc.yaml", "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [d["code"] for d in document["diagnostics"]] == ["DGC113"]
    assert [path.name for path in tmp_path.iterdir()] == ["disaggc.yaml"]
