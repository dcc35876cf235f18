"""The package as its wheel installs it, compiled: built from this checkout and unpacked outside of it.

`python -m tests.compiled` builds it where that is needed and prints its folder; `python -m tests.compiled COMMAND...` runs
a command whose processes use it, and theirs too. Made anew when anything that goes into it has changed; kept under the
cache for a day after it was last asked for, as long runs start workers late.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "disaggc-compiled"
FOLDERS = ("disaggc", "targets", "schemas", "examples")
FILES = ("pyproject.toml", ".ci/hatch_build.py", "README.md", "LICENSE")
"""What a wheel is made of."""
KEPT_S = 86_400
LIBRARY = "disaggc__mypyc."
"""What holds the code of all compiled modules."""


ASKED = "DISAGGC_TEST_COMPILED"
"""Set for processes that are to run the compiled package, so that one which does not can be told."""


class UncompiledError(Exception):
    """There is no compiled package; the message says why."""


class NoCompilerError(UncompiledError):
    """There cannot be one on this machine."""


def package() -> Path:
    """The folder to import the compiled package from; UncompiledError where it cannot be built."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        raise NoCompilerError("there is no C compiler")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=CACHE) as name, _alone():
        sources = Path(name) / "sources"
        _copy(sources)
        found = CACHE / _key(sources)
        if not found.exists():
            unpacked = Path(name) / "unpacked"
            _build(sources, unpacked)
            unpacked.rename(found)
        os.utime(found)
        _forget(found)
    return found


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Two that want the same one build it once."""
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _copy(sources: Path) -> None:
    """What is built is what was looked at, whatever is edited meanwhile."""
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.pyc")
        shutil.copytree(ROOT / folder, sources / folder, ignore=ignored)
    for file in FILES:
        (sources / file).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / file, sources / file)


def _key(sources: Path) -> str:
    """Of everything that decides what comes out."""
    digest = hashlib.sha256()
    for text in (
        sys.version,
        sysconfig.get_platform(),
        metadata.version("mypy"),
        str(os.environ.get("CFLAGS")),
    ):
        digest.update(text.encode() + b"\0")
    for path in sorted(p for p in sources.rglob("*") if p.is_file()):
        digest.update(f"{path.relative_to(sources)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(sources: Path, unpacked: Path) -> None:
    """A wheel by the project's own hook, with what is installed here; a package that is not compiled is an error."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(sources / "dist"),
        str(sources),
    ]
    env = {**os.environ, "DISAGGC_COMPILE": "1"}
    env.pop("DISAGGC_PURE", None)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UncompiledError(f"it cannot be built:\n{(done.stdout + done.stderr)[-4000:]}")
    (wheel,) = (sources / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)
    if not modules(unpacked):
        raise UncompiledError(f"nothing in {wheel.name} is compiled")


def _forget(found: Path) -> None:
    """Those of earlier sources that nobody asked for lately."""
    for old in CACHE.iterdir():
        if old != found and old.is_dir() and old.stat().st_mtime < time.time() - KEPT_S:
            shutil.rmtree(old, ignore_errors=True)


def modules(folder: Path) -> tuple[str, ...]:
    """The compiled modules of a package."""
    files = (path.relative_to(folder) for path in (folder / "disaggc").rglob("*.so"))
    return tuple(sorted(".".join((*file.parent.parts, file.name.split(".")[0])) for file in files))


def environment(folder: Path) -> dict[str, str]:
    """What makes a process, and those that it starts, import the package from there and the tests from here.

    Its working directory, this checkout as a rule, must not come first.
    """
    path = os.pathsep.join((str(folder), str(ROOT)))
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", ASKED: "1"}


def use(*, interpreted: bool = False) -> bool:
    """What the processes started from now on use: the compiled package, or this checkout; whether it is compiled."""
    if interpreted:
        return False
    try:
        os.environ.update(environment(package()))
    except UncompiledError as error:
        raise SystemExit(f"no compiled package, which `--interpreted` does without: {error}") from None
    return True


def check(proxy: int, *, is_compiled: bool) -> None:
    """SystemExit unless the workers of this proxy have loaded what is said of them (Linux)."""
    for task in Path(f"/proc/{proxy}/task").iterdir():
        for worker in (task / "children").read_text().split():
            if runs_compiled(int(worker)) is not is_compiled:
                raise SystemExit(f"worker {worker} of a proxy is {'not ' if is_compiled else ''}compiled")


def runs_compiled(pid: int) -> bool:
    """Whether a process has the compiled modules loaded (Linux)."""
    return LIBRARY in Path(f"/proc/{pid}/maps").read_text()


def main(command: list[str]) -> int:
    """Print the folder, or run the command; 69, which pytest never ends with, where there is no compiler."""
    try:
        folder = package()
    except UncompiledError as error:
        sys.stderr.write(f"no compiled package: {error}\n")
        return 69 if isinstance(error, NoCompilerError) else 1
    if command:
        os.execvpe(command[0], command, {**os.environ, **environment(folder)})  # noqa: S606 - nothing is to be quoted
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
