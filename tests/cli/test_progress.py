"""Who waits is told: a bar on a terminal that leaves nothing behind, few lines in a pipe, nothing under --quiet."""

from __future__ import annotations

import time

import pytest

from disaggc.cli import progress
from disaggc.cli.main import main
from disaggc.cli.progress import Bar


def begun(seconds: float, *, quiet: bool = False, drawn: bool = False) -> Bar:
    """A bar that began so long ago."""
    return Bar(drawn, quiet, time.monotonic() - seconds)


def test_a_pipe_hears_of_it_once_it_is_long_and_then_ever_more_rarely(capsys):
    bar = begun(0)
    bar.show("trying", 0.2)
    assert capsys.readouterr().err == ""
    for seconds, said in ((60, "trying: 40% done\n"), (100, ""), (125, "trying: 40% done\n"), (200, "")):
        bar.began_s = time.monotonic() - seconds
        bar.show("trying", 0.4)
        assert capsys.readouterr().err == said


def test_work_without_a_measure_is_said_while_it_goes_on(capsys):
    seen = ""
    with Bar(False, False, time.monotonic(), 0.01).unmeasured("solving"):
        end = time.monotonic() + 30
        while "solving" not in seen and time.monotonic() < end:
            time.sleep(0.01)
            seen += capsys.readouterr().err
    assert seen.startswith("solving: 0 s so far\n")
    capsys.readouterr()
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("drawn", [True, False])
def test_quiet_is_quiet(capsys, drawn):
    bar = begun(60, quiet=True, drawn=drawn)
    with bar.unmeasured("solving"):
        bar.show("trying", 0.5)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_the_bar_and_is_left_clean(capsys):
    bar = begun(0, drawn=True)
    with bar.unmeasured("solving"):
        assert capsys.readouterr().err == "\rsolving ..."
    assert capsys.readouterr().err == "\r" + 11 * " " + "\r"
    bar.show("trying", 0.5)
    assert "[" + 15 * "#" + 15 * "." + "]  50%" in capsys.readouterr().err


@pytest.mark.parametrize("verb", [("plan",), ("explain",), ("build", "--out", "built"), ("simulate",)])
def test_every_command_that_solves_says_so(verb, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["init", ".", "--example", "gpt-oss-120b-single-node", "-q"]) == 0
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    capsys.readouterr()
    main([verb[0], "disaggc.yaml", *verb[1:]])
    assert "\rsolving ..." in capsys.readouterr().err
