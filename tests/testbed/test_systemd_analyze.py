"""systemd's own tools on emitted units. Nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from disaggc.emit.api import TargetChoice, emit
from disaggc.emit.quoting import UnsafeTextError, unit_executable
from disaggc.spec.model import SystemdTarget
from tests.emit.hostile import HOSTILE
from tests.emit.plans import ADDRESSED, Texts, colocated
from tests.emit.unit_root import build_root, exposure, missing_tool, verify

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.skipif(missing_tool() is not None, reason=str(missing_tool())),
]
ENGINE_LIMIT, PROXY_LIMIT = 5.0, 2.5


@pytest.mark.parametrize("name", sorted(ADDRESSED))
def test_units_verify_without_a_word_and_are_fenced_in(name, tmp_path: Path):
    artifacts = emit(ADDRESSED[name](), TargetChoice(SystemdTarget())).value
    assert artifacts is not None
    seen = 0
    for host in sorted({a.host for a in artifacts.artifacts if a.host}):
        root = tmp_path / host
        units = build_root(root, artifacts, host)
        assert verify(root, units) == ""
        for unit in units:
            limit = PROXY_LIMIT if "-proxy@" in unit else ENGINE_LIMIT
            assert exposure(root, unit) <= limit, unit
            seen += 1
    assert seen > 1


def test_verify_would_notice_a_broken_unit(tmp_path: Path):
    artifacts = emit(ADDRESSED["five-nodes"](), TargetChoice(SystemdTarget())).value
    assert artifacts is not None
    units = build_root(tmp_path, artifacts, "gpu-01")
    path = tmp_path / "etc/systemd/system" / units[0]
    path.write_text(path.read_text(encoding="utf-8") + "\n[Service]\nNoSuchKey=1\n", encoding="utf-8")
    assert "NoSuchKey" in verify(tmp_path, units)


def executable(text: str) -> str | None:
    """The text as the path of a program, if systemd takes it for one."""
    path = "/opt/" + text
    try:
        unit_executable(path)
    except UnsafeTextError:
        return None
    return path if len(path) < 255 and "//" not in path and "/." not in path else None


@pytest.mark.parametrize("text", [text for text in HOSTILE if executable(text)])
def test_systemd_finds_exactly_the_program_that_was_meant(text, tmp_path: Path):
    """systemd itself undoes the quoting here: it looks for the program under the name it has read."""
    command = executable(text)
    assert command is not None
    artifacts = emit(colocated(Texts(command=command)), TargetChoice(SystemdTarget())).value
    assert artifacts is not None
    units = [unit for unit in build_root(tmp_path, artifacts, "gpu-01") if "colocated" in unit]
    assert verify(tmp_path, units) == ""
    (tmp_path / command.lstrip("/")).unlink()
    assert "is not executable" in verify(tmp_path, units)


@pytest.mark.parametrize("text", HOSTILE)
def test_systemd_has_nothing_to_say_about_hostile_arguments(text, tmp_path: Path):
    weights = "x" + text if text[:1] in ("-", "/") else text
    texts = Texts(weights=weights, served=text[:500] or "x", env=(("A", text),), settings=(("x", text),))
    artifacts = emit(colocated(texts), TargetChoice(SystemdTarget())).value
    assert artifacts is not None
    units = [unit for unit in build_root(tmp_path, artifacts, "gpu-01") if "colocated" in unit]
    assert verify(tmp_path, units) == ""
