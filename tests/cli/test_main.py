from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from disaggc import __version__
from disaggc.cli import main as entry
from disaggc.cli.main import main
from disaggc.proxy import framing

ROOT = Path(__file__).resolve().parents[2]


def test_version(capsys):
    assert main(["--version"]) == 0
    kind = "interpreted" if framing.__file__.endswith(".py") else "compiled"
    assert capsys.readouterr().out == f"disaggc {__version__}\nproxy: {kind}\n"


def test_help_names_every_verb(capsys):
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for verb in ("init", "validate", "plan", "build", "explain", "schema", "catalog"):
        assert re.search(rf"^  {verb} ", out, re.MULTILINE)


@pytest.mark.parametrize("verb", ["init", "validate", "plan", "build", "explain", "schema"])
def test_every_verb_takes_the_common_options(verb, capsys):
    assert main([verb, "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("--format", "--color", "-q", "--no-input"):
        assert option in out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["validate", "--nonsense"],
        ["validate", "--format", "xml"],
        ["plan", "--target", "nomad"],
        ["plan", "--deny", "errors"],
        ["build", "spec.yaml"],
        ["schema", "nonsense"],
        ["init", "--example", "nonsense"],
        ["catalog"],
        ["catalog", "nonsense"],
        ["plan", "--refresh=maybe"],
        ["plan", "--out"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_64_and_says_where_help_is(arguments, capsys):
    assert main(arguments) == 64
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "--help`" in captured.err
    assert "Traceback" not in captured.err


def test_a_bug_is_70_with_a_report_that_holds_no_values(monkeypatch, capsys):
    def broken(**_):
        raise RuntimeError("token hunter2")

    monkeypatch.setattr(entry, "app", broken)
    assert main(["plan", "--set", "services.chat.engine.env.TOKEN=hunter2", "--color=never"]) == 70
    err = capsys.readouterr().err
    assert err.startswith("internal error: RuntimeError")
    report = Path(re.search(r"at (\S+)$", err, re.MULTILINE)[1])
    text = report.read_text()
    report.unlink()
    assert "hunter2" not in text + err
    assert "services.chat.engine.env.TOKEN=..." in text
    assert "test_main.py" in text
    assert __version__ in text


def test_interrupt_is_130(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "app", interrupted)
    assert main(["plan"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_closed_pipe_is_quiet():
    code = "import sys; from disaggc.cli.main import main; sys.exit(main(sys.argv[1:]))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-c", code, "catalog", "accelerators"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_result_on_stdout_findings_on_stderr(tmp_path, capsys):
    assert main(["validate", str(tmp_path / "missing.yaml")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "DGC101" in captured.err


def test_schema_lists_and_prints(capsys):
    assert main(["schema"]) == 0
    names = capsys.readouterr().out.split()
    assert {"spec", "plan", "diagnostics", "build", "explain"} <= set(names)
    for name in names:
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out)["$schema"].endswith("2020-12/schema")
    assert main(["schema", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"schema": "disaggc.schemas/v1", "schemas": names}


def test_colour_only_where_it_is_wanted(tmp_path, capsys, monkeypatch):
    missing = str(tmp_path / "missing.yaml")
    main(["validate", missing])
    assert "\x1b[" not in capsys.readouterr().err
    main(["validate", missing, "--color", "always"])
    assert "\x1b[" in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["validate", missing])
    assert "\x1b[" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    main(["validate", missing])
    assert "\x1b[" not in capsys.readouterr().err
