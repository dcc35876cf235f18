"""The wheel alone, of sources, in an environment of its own, compiles an example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT],
        check=True,
        capture_output=True,
        # The compiled one takes a minute: tests/testbed/test_compiled_wheel.py.
        env={**os.environ, "DISAGGC_PURE": "1", "DISAGGC_COMPILE": "0"},
    )
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_what_the_code_reads(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"disaggc/_data/{kind}/{path.relative_to(ROOT / kind).as_posix()}"
        for kind in ("targets", "schemas", "examples")
        for path in (ROOT / kind).rglob("*")
        if path.is_file()
    }
    assert wanted <= names
    data = {p.relative_to(ROOT).as_posix() for p in (ROOT / "disaggc").rglob("*.toml")}
    assert data <= names
    assert "disaggc/py.typed" in names
    assert not any(name.startswith(("tests/", "disaggc/_data/tests")) for name in names)


def test_the_wheel_compiles_an_example_on_its_own(wheel, tmp_path):
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    ]
    subprocess.run(install, check=True)
    # The dependencies are lent by this environment: only disaggc itself has to come from the wheel.
    site = next((venv / "lib").glob("python3*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [venv / "bin" / "disaggc", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import disaggc; print(disaggc.__file__)"
    origin = subprocess.run(
        [python, "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert origin.startswith(str(site))
    run("init", "work", "--example", "deepseek-r1-mi300x")
    document = json.loads(run("build", "work/disaggc.yaml", "--out", "out", "--format", "json"))
    assert document["files"]
    assert all((tmp_path / "out" / file["path"]).is_file() for file in document["files"])
