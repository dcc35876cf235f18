"""The console script as a process: what the streams and the keyboard do to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from disaggc.cli.crash import broken_installation

RUN = "import sys; from disaggc.cli.entry import run; sys.exit(run())"


def shell(line: str, place: Path, **env: str) -> subprocess.CompletedProcess[str]:
    script = line.replace("disaggc", f"'{sys.executable}' -c '{RUN}'")
    return subprocess.run(
        ["/bin/sh", "-c", script], cwd=place, env=env, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("disaggc catalog accelerators >&-", 0),
        ("disaggc validate nowhere.yaml 2>&-", 1),
        ("disaggc validate nowhere.yaml <&- >&- 2>&-", 1),
        ("disaggc catalog accelerators --format json | true", 0),
    ],
)
def test_a_closed_stream_changes_no_exit_code(tmp_path, line, code):
    done = shell(line, tmp_path)
    assert (done.returncode, done.stderr if "2>&-" in line else "") == (code, "")
    assert "internal error" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", ["--help", "catalog accelerators", "schema spec"])
def test_a_full_disk_behind_stdout_is_no_bug_of_ours(tmp_path, arguments):
    done = shell(f"disaggc {arguments} >/dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: standard output: No space left on device\n"


@pytest.mark.parametrize("form", ["human", "json", "sarif", "github", "junit"])
def test_a_narrow_encoding_shows_code_points(tmp_path, form):
    (tmp_path / "disaggc.yaml").write_text('version: 1\n"дорога\U0001f600": 1\n', encoding="utf-8")
    done = shell(f"disaggc validate --format {form}", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 1
    assert "\\u0434" in done.stdout + done.stderr


def test_an_interrupt_while_the_verbs_load(tmp_path):
    script = (
        "import sys, builtins\nfrom disaggc.cli.entry import run\nload = builtins.__import__\n"
        "def stop(name, *rest, **more):\n"
        "    if name == 'disaggc.cli.main': raise KeyboardInterrupt\n"
        "    return load(name, *rest, **more)\n"
        "builtins.__import__ = stop\nrun()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("missing", "line"),
    [("msgspec", "proxy --config routing.json"), ("typer", "catalog"), ("pydantic", "validate x.yaml")],
)
def test_a_package_that_the_installation_lacks_is_said_with_what_to_do(tmp_path, missing, line):
    (tmp_path / "routing.json").write_text("{}")
    script = (
        "import sys\n"
        f"sys.modules[{missing!r}] = None\n"
        "from disaggc.cli.entry import run\n"
        f"sys.argv = ['disaggc', *{line.split()!r}]\nrun()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert f"the package `{missing}` is not installed" in done.stderr
    assert "pip install" in done.stderr
    assert "bug" not in done.stderr


def test_a_missing_part_of_disaggc_is_a_bug_of_ours():
    assert broken_installation(ModuleNotFoundError("x", name="disaggc.nothing")) is None
    assert broken_installation(ImportError("cannot import name", name="json")) is None
    assert "does not have" in (
        broken_installation(ImportError("cannot import name", name="msgspec.json")) or ""
    )
