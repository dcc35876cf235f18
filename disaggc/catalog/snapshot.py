"""Reads an installed (or unpacked) vLLM and writes what it accepts: `python -m disaggc.catalog.snapshot --out DIR`.

Runs inside an environment that holds vLLM; imports nothing of disaggc but the source reader beside it. With
`--source DIR` the vLLM package under DIR is read instead of the installed one (its dependencies must be importable).
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from disaggc.catalog.snapshot_source import connectors, kv_transfer_keys

_PARSERS = (
    "vllm.entrypoints.common.cli_args",
    "vllm.entrypoints.launchers.cli_args",
    "vllm.entrypoints.openai.cli_args",
)
_SCHEMA = "disaggc.engine-snapshot/v1"


def main(arguments: list[str] | None = None) -> int:
    """Write `<version>.json` into the directory; the version is the package's unless given."""
    parser = argparse.ArgumentParser(prog="disaggc.catalog.snapshot", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory for <version>.json")
    parser.add_argument("--source", type=Path, help="directory that holds an unpacked `vllm` package")
    parser.add_argument("--version", help="version to write, e.g. 0.33.0; needed with --source")
    given = parser.parse_args(arguments)
    if given.source is not None:
        sys.path.insert(0, str(given.source))
    package = Path(str(importlib.import_module("vllm").__file__)).parent
    version = given.version or _installed_version()
    text = render(read(package, version))
    target = given.out / f"{version}.json"
    target.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{target}\n")
    return 0


def read(package: Path, version: str) -> dict[str, Any]:
    """The snapshot of a vLLM package that is importable now."""
    return {
        "schema": _SCHEMA,
        "version": version,
        "source": f"vLLM {version}: argument parser of `vllm serve`, vllm/envs.py, KV connector registry and sources",
        "flags": dict(sorted(_flags().items())),
        "env": sorted(importlib.import_module("vllm.envs").environment_variables),
        "connectors": connectors(package),
        "kv_transfer_keys": kv_transfer_keys(package),
    }


def render(snapshot: dict[str, Any]) -> str:
    """JSON with one line for each flag and connector, so that a change of version reads as a diff."""
    lines = ["{"]
    for key, value in snapshot.items():
        if isinstance(value, dict):
            rows = ",\n".join(
                f"  {json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in value.items()
            )
            lines.append(f" {json.dumps(key)}: {{\n{rows}\n }},")
        elif isinstance(value, list):
            lines.append(
                f" {json.dumps(key)}: [\n" + ",\n".join(f"  {json.dumps(item)}" for item in value) + "\n ],"
            )
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)},")
    return "\n".join(lines).rstrip(",") + "\n}\n"


def _installed_version() -> str:
    metadata = importlib.import_module("importlib.metadata")
    return str(metadata.version("vllm")).split("+", maxsplit=1)[0]


def _serve_parser() -> argparse.ArgumentParser:
    make: Callable[[Any], argparse.ArgumentParser] | None = None
    for name in _PARSERS:
        try:
            make = importlib.import_module(name).make_arg_parser
            break
        except ModuleNotFoundError:
            continue
    if make is None:
        raise SystemExit("this vLLM has its `vllm serve` parser in none of the known places")
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    return make(flexible(prog="vllm serve"))


def _flags() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = {}
    for action in _serve_parser()._actions:  # noqa: SLF001 - argparse has no public list of its options
        if not action.option_strings or isinstance(action, argparse._HelpAction):  # noqa: SLF001 - as above
            continue
        plain = [text.lstrip("-") for text in action.option_strings]
        negative = _negations(action, plain)
        name = next(text for text in plain if text not in negative and len(text) > 1)
        name = max(
            (t for t in plain if t not in negative and t == action.dest.replace("_", "-")), default=name
        )
        table[name] = _row(action, [t for t in plain if t != name and t not in negative], sorted(negative))
    return table


def _negations(action: argparse.Action, plain: list[str]) -> set[str]:
    inverse = {text.lstrip("-") for text in getattr(action, "negative_option_strings", ())}
    if isinstance(action, argparse.BooleanOptionalAction):
        inverse |= {text for text in plain if text.startswith("no-")}
    return inverse


def _row(action: argparse.Action, aliases: list[str], negations: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": _kind(action)}
    if aliases:
        row["aliases"] = sorted(aliases)
    if negations:
        row["negations"] = negations
    if isinstance(action.default, bool | int | float | str):
        row["default"] = str(action.default)
    if action.choices:
        row["choices"] = sorted(str(choice) for choice in action.choices)
    return row


def _kind(action: argparse.Action) -> str:
    if action.nargs == 0:
        return "bool"
    if action.nargs in {"+", "*"} or isinstance(action, argparse._AppendAction):  # noqa: SLF001 - see above
        return "list"
    if action.choices:
        return "choice"
    return _type_kind(action.type)


def _type_kind(kind: Any) -> str:
    """Names the type of an option, looking through vLLM's wrappers for optional and JSON values."""
    known = {int: "int", float: "float", str: "str", bool: "bool", json.loads: "json"}
    try:
        if kind in known:
            return known[kind]
    except TypeError:
        return "str"
    inner = [cell.cell_contents for cell in getattr(kind, "__closure__", None) or ()]
    for value in inner:
        if callable(value) and _type_kind(value) != "str":
            return _type_kind(value)
    name = getattr(kind, "__name__", "")
    if name.startswith("human_readable_int"):
        return "int"
    return "json" if name in {"parse_dataclass", "union_dict_and_str", "json_or_str"} else "str"


if __name__ == "__main__":
    raise SystemExit(main())
