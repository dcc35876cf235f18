"""The README shows a spec and what disaggc really prints for it; `make golden` brings the output up to date."""

from __future__ import annotations

import re
import shlex

from disaggc.cli.main import main
from tests.examples.targets import ROOT

README = ROOT / "README.md"
_BLOCK = re.compile(r"```yaml\n(?P<spec>.*?)```\n(?P<between>.*?)```text\n(?P<output>.*?)```\n", re.DOTALL)


def printed(spec: str, tmp_path, capsys) -> str:
    path = tmp_path / "disaggc.yaml"
    path.write_text(spec)
    assert main(["plan", str(path), "--refresh=false", "-q"]) == 0
    return capsys.readouterr().out.partition("\nchanges\n")[0].rstrip() + "\n"


def test_the_readme_shows_real_output(tmp_path, capsys, regen_golden):
    text = README.read_text()
    block = _BLOCK.search(text)
    assert block is not None
    real = printed(block["spec"], tmp_path, capsys)
    if regen_golden:
        text = text[: block.start("output")] + real + text[block.end("output") :]
        README.write_text(text)
    assert _BLOCK.search(text)["output"] == real, "run `make golden` and review"
    assert len(block["spec"].splitlines()) == 10


def test_what_the_readme_builds_is_built(tmp_path, capsys, monkeypatch):
    block = _BLOCK.search(README.read_text())
    assert block is not None
    commands = re.findall(r"^    disaggc (build .*)$", README.read_text(), re.MULTILINE)
    assert commands
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disaggc.yaml").write_text(block["spec"])
    for command in commands:
        assert main(shlex.split(command)) == 0, capsys.readouterr().err


def test_every_link_of_the_readme_leads_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


def test_the_two_commands_exist():
    makefile = (ROOT / "Makefile").read_text()
    for command in re.findall(r"^    make (\w+)", README.read_text(), re.MULTILINE):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command
