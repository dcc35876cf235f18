"""The sdist and the compiled wheel that is built from it: what they hold, install and leave behind; what fails cleanly."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.testbed

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
COMPILER = sysconfig.get_config_var("CC").split()[0]


@pytest.fixture(scope="module", autouse=True)
def _compiler():
    if shutil.which(os.environ.get("CC", COMPILER)) is None:
        pytest.skip(f"no C compiler ({COMPILER})")


def build(where: Path, out: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *arguments, where],
        env={**os.environ, "DISAGGC_PURE": "0", "DISAGGC_COMPILE": "0", **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    before = files(ROOT)
    done = build(ROOT, out, DISAGGC_COMPILE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"disaggc: {len(MODULES)} modules of the proxy compiled" in done.stderr
    left = {path for path in files(ROOT) - before if path.suffix in {".c", ".h", ".so", ".o"}}
    assert not left
    return out


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if ".venv" not in path.parts}


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sources(dist, tmp_path_factory) -> Path:
    """The sdist, unpacked."""
    (found,) = dist.glob("*.tar.gz")
    folder = tmp_path_factory.mktemp("sources")
    with tarfile.open(found) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return unpacked


def test_the_wheel_is_of_this_platform_and_holds_both(wheel):
    assert wheel.name.split("-")[2] == f"cp{sys.version_info[0]}{sys.version_info[1]}"
    names = set(zipfile.ZipFile(wheel).namelist())
    paths = [name.replace(".", "/") for name in MODULES]
    compiled = {f"{path}{SUFFIX}" for path in paths} | {f"disaggc__mypyc{SUFFIX}"}
    assert {name for name in names if name.endswith(SUFFIX)} == compiled
    assert {f"{path}.py" for path in paths} <= names
    assert not {name for name in names if name.endswith((".c", ".h", ".ini")) or "hatch_build" in name}


def test_nothing_of_the_build_is_in_it_or_needed_by_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read(f"disaggc__mypyc{SUFFIX}")
    for word in (b"disaggc-compiled-", b"librt.", str(ROOT).encode()):
        assert word not in library
    assert len(library) < 4 << 20


@pytest.fixture
def venv(wheel, tmp_path) -> Path:
    """The wheel, installed without a compiler in sight; its dependencies are lent by this environment."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip(folder, "install", "--no-deps", "--no-index", str(wheel))
    site = next((folder / "lib").glob("python3*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def pip(venv: Path, *arguments: str) -> None:
    python = venv / "bin" / "python"
    env = {"PATH": str(venv / "bin"), "CC": "no-such-compiler"}
    command = [sys.executable, "-m", "pip", "--python", python, "--quiet", *arguments]
    subprocess.run(command, check=True, env=env)


def run(venv: Path, *command: str) -> str:
    done = subprocess.run(
        [venv / "bin" / command[0], *command[1:]],
        cwd=venv,
        env={"PATH": str(venv / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_installs_runs_and_goes_without_a_trace(venv):
    site = next((venv / "lib").glob("python3*/site-packages"))
    assert run(venv, "disaggc", "--version").splitlines()[1] == "proxy: compiled"
    assert "--config" in run(venv, "disaggc", "proxy", "--help")
    loaded = run(
        venv,
        "python",
        "-c",
        f"import importlib\nfor n in {MODULES}: print(importlib.import_module(n).__file__)",
    )
    assert loaded.split() == [str(site / f"{name.replace('.', '/')}{SUFFIX}") for name in MODULES]
    pip(venv, "uninstall", "--yes", "disaggc")
    assert not list(site.rglob("*disaggc*"))
    assert not (venv / "bin" / "disaggc").exists()


def test_the_sources_build_again_to_the_same_library(sources, wheel, tmp_path):
    done = build(sources, tmp_path, "--wheel", DISAGGC_COMPILE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    name = f"disaggc__mypyc{SUFFIX}"
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(tmp_path / wheel.name) as second:
        assert first.read(name) == second.read(name)


@pytest.mark.parametrize("compiler", ["/bin/false", "/no/such/compiler"])
def test_without_a_working_compiler_the_wheel_holds_the_sources(sources, tmp_path, compiler):
    done = build(sources, tmp_path, "--wheel", CC=compiler)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("disaggc: ")]
    assert line.startswith("disaggc: sources alone, not compiled: ")
    assert compiler in line
    assert "Traceback" not in done.stdout + done.stderr
    (built,) = tmp_path.glob("*.whl")
    assert built.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(built).namelist() if name.endswith(".so")]


@pytest.mark.parametrize("compiler", ["/bin/false", "/no/such/compiler"])
def test_a_release_does_not_fall_back(sources, tmp_path, compiler):
    done = build(sources, tmp_path, "--wheel", CC=compiler, DISAGGC_COMPILE="1")
    assert done.returncode != 0
    assert "disaggc: not compiled: " in done.stderr
    assert not list(tmp_path.glob("*.whl"))


def test_what_mypyc_refuses_is_named(sources, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(sources, copy)
    with (copy / "disaggc" / "proxy" / "framing.py").open("a") as file:
        file.write('\n\nWRONG: int = "text"\n')
    done = build(copy, tmp_path / "out", "--wheel")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not compiled: disaggc/proxy/framing.py:" in done.stderr
    assert "py3-none-any.whl" in done.stdout
