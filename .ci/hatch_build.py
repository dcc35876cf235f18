"""Build hook of the wheel: what a request of the proxy passes through is compiled by mypyc, where that can be done.

The wheel then holds both: the sources, and beside them the extension modules that Python prefers. Without a C compiler,
or where compiling fails, it holds the sources alone and says why in one line; they do the same, only slower.

DISAGGC_PURE=1: sources alone. DISAGGC_COMPILE=1: not compiled is an error. Editable installs are never compiled: an
extension module would hide what is edited.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "disaggc"
COMPILERS = ["mypy>=2.4,<3", "setuptools>=65.5"]
"""What compiling needs beside a C compiler. The types of the dependencies are not needed, see CHECKED."""
CHECKED = """\
[mypy]
no_site_packages = True
ignore_missing_imports = True
follow_imports = silent
"""
"""How mypy reads the sources: without looking at what is installed, so that the same comes out on every machine."""
OPTIMIZE = "2"
"""A request's Python takes 5 % more with 1 and the same with 3; gcc 12 takes 23 s for it, 12 s with 1."""
LINUX_COMPILE = ["-fno-semantic-interposition", "-fvisibility=hidden"]
"""Calls between the modules go straight to the function: 7 % of a request's Python."""
LINUX_LINK = ["-Wl,-Bsymbolic", "-Wl,-s"]
"""As above; and no symbols, a fifth of the size."""


class CompileError(Exception):
    """Nothing was compiled: why, in one line, and what the compilers printed."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.log = log


class CompiledWheel(BuildHookInterface[Any]):
    """Adds the extension modules to a wheel. They live in a temporary folder until the wheel is written."""

    _made: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Packages that the build needs on top of its back end."""
        return [] if _is_set("DISAGGC_PURE") or _obstacle() else COMPILERS

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the wheel is an editable one or is to hold sources alone."""
        if version == "editable":
            return
        pure, needed = _is_set("DISAGGC_PURE"), _is_set("DISAGGC_COMPILE")
        if pure and needed:
            self.app.abort("disaggc: DISAGGC_PURE and DISAGGC_COMPILE are both set")
        if pure:
            _say("sources alone, as DISAGGC_PURE says")
            return
        self._made = tempfile.TemporaryDirectory(prefix="disaggc-compiled-")
        try:
            made = compiled(Path(self.root), self.config["modules"], Path(self._made.name))
        except (CompileError, OSError) as error:
            log = error.log if isinstance(error, CompileError) else ""
            if needed:
                self.app.abort(f"{log}disaggc: not compiled: {error}")
            _say(f"sources alone, not compiled: {error} (DISAGGC_COMPILE=1 makes this an error with its log)")
            return
        build_data["force_include"].update(made)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        _say(f"{len(self.config['modules'])} modules of the proxy compiled")

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        del version, build_data, artifact_path
        if self._made is not None:
            self._made.cleanup()


def compiled(root: Path, modules: list[str], work: Path) -> dict[str, str]:
    """The extension modules, made in `work`: where each is and its path in the wheel. Fails with CompileError."""
    if obstacle := _obstacle():
        raise CompileError(obstacle)
    sources, made = work / "sources", work / "made"
    shutil.copytree(root / PACKAGE, sources / PACKAGE, ignore=_all_but_python)
    (work / "mypy.ini").write_text(CHECKED)
    _run(["-P", str(Path(__file__).resolve()), str(work), *modules], cwd=sources)
    library = f"{PACKAGE}__mypyc"
    _run(["-c", f"import {library}"], cwd=made)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    wanted = {f"{name}{suffix}" for name in (library, *(module.replace(".", "/") for module in modules))}
    found = {path.relative_to(made).as_posix(): str(path) for path in made.rglob(f"*{suffix}")}
    if wanted != set(found):
        raise CompileError(f"made is not what is listed: {sorted(wanted ^ set(found))}")
    return {path: name for name, path in found.items()}


def _all_but_python(folder: str, names: list[str]) -> set[str]:
    """Extension modules of an earlier build above all: mypy and Python would take them for the sources."""
    return {name for name in names if not (name.endswith(".py") or (Path(folder) / name).is_dir())}


def _run(arguments: list[str], *, cwd: Path) -> None:
    """A Python process of its own: a compiler that gives up ends it, and what it prints is kept together."""
    env = {name: value for name, value in os.environ.items() if name not in {"MYPYPATH", "MYPY_CACHE_DIR"}}
    done = subprocess.run(  # noqa: S603 - this file or one import
        [sys.executable, *arguments],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        last = lines[-1].strip().removeprefix("error: ") if lines else f"exit code {done.returncode}"
        raise CompileError(last, done.stdout)


def _obstacle() -> str:
    """Why nothing can be compiled here; empty where it can be tried."""
    if sys.implementation.name != "cpython":
        return f"mypyc compiles for CPython, this is {sys.implementation.name}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if sys.platform != "win32" and shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python's headers are not installed"
    return ""


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in {"", "0"}


def _say(text: str) -> None:
    sys.stderr.write(f"disaggc: {text}\n")


def _compile(work: Path, modules: list[str]) -> None:
    """What the process of `compiled` does: C from the sources in the working directory, extension modules from C."""
    from mypyc.build import mypycify  # noqa: PLC0415 - not there before the build has it installed
    from setuptools import setup  # noqa: PLC0415 - as above

    paths = [f"{module.replace('.', '/')}.py" for module in modules]
    extensions = mypycify(
        ["--config-file", str(work / "mypy.ini"), *paths],
        opt_level=OPTIMIZE,
        debug_level="0",
        group_name=PACKAGE,
        target_dir=str(work / "c"),
    )
    for extension in extensions:
        # mypyc asks for -Werror: a newer compiler with a new warning must not be the end.
        extension.extra_compile_args += [] if sys.platform == "win32" else ["-Wno-error"]
        if sys.platform == "linux":
            extension.extra_compile_args += LINUX_COMPILE
            extension.extra_link_args += LINUX_LINK
    command = ["build_ext", "--build-lib", str(work / "made"), "--build-temp", str(work / "objects")]
    setup(name=PACKAGE, ext_modules=extensions, script_args=["--quiet", *command, "--parallel", "4"])


if __name__ == "__main__":
    _compile(Path(sys.argv[1]), sys.argv[2:])
