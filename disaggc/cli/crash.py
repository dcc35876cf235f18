"""What is left behind when disaggc itself fails: a file for the bug report. Holds no value from a spec or an option."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from pathlib import Path

from disaggc import __version__


def report_crash(bug: BaseException, arguments: list[str]) -> str:
    """Write the report; the text for stderr, which names the file."""
    head = f"internal error: {type(bug).__name__}; this is a bug in disaggc, not in your spec\n"
    try:
        handle, name = tempfile.mkstemp(prefix="disaggc-bug-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_report(bug, arguments))
    except OSError as problem:
        return head + f"the report could not be written: {problem.strerror}\n"
    return head + f"a report without values from your files is at {Path(name)}\n"


def broken_installation(bug: BaseException) -> str | None:
    """What to do where not disaggc but the installation is at fault; None where it is not.

    A package that disaggc needs is absent, or too old for a name that it is asked for: mostly one that a newer disaggc
    needs since the last `pip install`.
    """
    if not isinstance(bug, ImportError) or bug.name is None:
        return None
    package = bug.name.partition(".")[0]
    if package == "disaggc" or package in sys.stdlib_module_names:
        return None
    what = (
        "is not installed"
        if isinstance(bug, ModuleNotFoundError)
        else "does not have what disaggc needs of it"
    )
    source = Path(__file__).resolve().parents[2]
    again = (
        f"pip install -e {source}"
        if (source / "pyproject.toml").is_file()
        else "pip install --upgrade disaggc"
    )
    return (
        f"error: the package `{package}` {what} in {sys.prefix}\n"
        f"disaggc may have come to need it since it was installed; install it again: `{again}`\n"
    )


def _report(bug: BaseException, arguments: list[str]) -> str:
    # Messages of exceptions and values of options may carry what the user keeps secret: only places and names are kept.
    frames = traceback.extract_tb(bug.__traceback__)
    lines = [
        f"disaggc {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        "command: " + " ".join(_redacted(argument) for argument in arguments),
        "error: " + " <- ".join(type(error).__name__ for error in _chain(bug)),
        *(f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames),
    ]
    return "\n".join(lines) + "\n"


def _redacted(argument: str) -> str:
    name, separator, _ = argument.partition("=")
    return f"{name}=..." if separator else argument


def _chain(bug: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    error: BaseException | None = bug
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
