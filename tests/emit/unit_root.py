"""A root directory in which systemd's own tools find emitted units and everything that the units name."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from disaggc.emit.artifacts import ArtifactSet
from disaggc.emit.reading.units import read_unit

STOCK_UNITS = Path("/usr/lib/systemd/system")


def missing_tool() -> str | None:
    if shutil.which("systemd-analyze") is None:
        return "systemd-analyze is not installed (package systemd)"
    return (
        None
        if STOCK_UNITS.is_dir()
        else f"{STOCK_UNITS} is missing: nothing to resolve sysinit.target against"
    )


def build_root(root: Path, artifacts: ArtifactSet, host: str) -> list[str]:
    """The host's files under `root`, stubs for the executables, stock units beside them; returns the unit names."""
    shutil.copytree(STOCK_UNITS, root / "usr/lib/systemd/system", symlinks=True, dirs_exist_ok=True)
    units = []
    for artifact in artifacts.artifacts:
        if artifact.host != host:
            continue
        path = root / Path(artifact.path).relative_to(host)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(artifact.text, encoding="utf-8")
        if path.suffix == ".service":
            units.append(path.name)
            stub(root, (command[0] for command in read_unit(artifact.text).commands("ExecStart")))
    stub(root, ("/bin/sh", "/bin/kill"))
    return units


def stub(root: Path, executables: Iterable[str]) -> None:
    for executable in executables:
        path = root / executable.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n", encoding="utf-8")
        path.chmod(0o755)


def verify(root: Path, units: list[str]) -> str:
    """What systemd-analyze verify has to say: anything at all is a failure, its exit status tells nothing."""
    done = subprocess.run(
        ["systemd-analyze", "verify", f"--root={root}", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stderr + done.stdout + (f"exit {done.returncode}" if done.returncode else "")


def exposure(root: Path, unit: str) -> float:
    """The overall exposure level of a unit, 0 (fenced in) to 10."""
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--root={root}", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found = re.search(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    return float(found[1])
