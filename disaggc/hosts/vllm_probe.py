"""Asks an installed vLLM what it thinks of command lines. Run by its own interpreter; imports nothing of disaggc.

stdin: {"lines": [{"words": [...], "env": {...}, "configure": bool}]}, words being what follows `vllm serve`.
stdout, last line: {"version": "...", "verdicts": [{"stage": "parse|check|arguments|config|ok", "message": "..."}]}.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",  # 0.33
    "vllm.entrypoints.launchers.cli_args",  # 0.32
    "vllm.entrypoints.openai.cli_args",  # until 0.31
)
FLEXIBLE_MODULES = ("vllm.utils.argparse_utils", "vllm.utils")


def first(modules: Sequence[str], name: str) -> Any:
    """The attribute from the first module that has it."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise LookupError(name)


def verdict(line: Mapping[str, Any]) -> tuple[str, str]:
    """How far one command line gets."""
    parser = first(FLEXIBLE_MODULES, "FlexibleArgumentParser")(prog="vllm serve")
    parser = first(PARSER_MODULES, "make_arg_parser")(parser)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = parser.parse_args(line["words"])
    except SystemExit:
        return "parse", said_after_usage(said.getvalue())
    except Exception as problem:  # noqa: BLE001 - whatever vLLM raises is its verdict
        return "parse", complaint(problem)
    if getattr(arguments, "model_tag", None) is not None:
        arguments.model = arguments.model_tag
    steps: list[tuple[str, Callable[[], object]]] = [
        ("check", lambda: first(PARSER_MODULES, "validate_parsed_serve_args")(arguments))
    ]
    made: list[Any] = []

    def engine_arguments() -> None:
        made.append(first(("vllm.engine.arg_utils",), "AsyncEngineArgs").from_cli_args(arguments))

    steps.append(("arguments", engine_arguments))
    if line.get("configure"):
        # Not the bound method: it is made by the step before.
        steps.append(("config", lambda: made[0].create_engine_config()))  # noqa: PLW0108
    for stage, step in steps:
        try:
            step()
        except SystemExit as problem:
            return stage, str(problem)
        except Exception as problem:  # noqa: BLE001 - whatever vLLM raises is its verdict
            return stage, complaint(problem)
    return "ok", ""


def complaint(problem: Exception) -> str:
    """One line of an exception; of a pydantic one the fields with their messages."""
    errors = getattr(problem, "errors", None)
    if callable(errors):
        with contextlib.suppress(Exception):
            found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in errors()]
            return "; ".join(found)
    return " ".join(f"{type(problem).__name__}: {problem}".split())


def said_after_usage(text: str) -> str:
    """What argparse says after its usage, in one line, without pydantic's pointers to its site."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    begun = next((n for n, line in enumerate(lines) if ": error: " in line), max(0, len(lines) - 1))
    kept = [line for line in lines[begun:] if not line.startswith("For further information")]
    return " ".join(kept) or "refused without a word"


def main() -> None:
    """Judge the lines of stdin."""
    asked = json.load(sys.stdin)
    version = importlib.import_module("vllm").__version__
    plain = dict(os.environ)
    found = []
    for line in asked["lines"]:
        os.environ.clear()
        os.environ.update({**plain, **line["env"]})
        with contextlib.redirect_stdout(sys.stderr):
            stage, message = verdict(line)
        found.append({"stage": stage, "message": message})
    sys.stdout.write(json.dumps({"version": version, "verdicts": found}) + "\n")


if __name__ == "__main__":
    main()
