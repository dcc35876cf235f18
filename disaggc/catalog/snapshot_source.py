"""What the vLLM parser does not say, read from its source without running it: KV connectors, their options, limits.

Standard library only, for it runs in vLLM's environment. Knows where vLLM keeps its connectors.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

_CONNECTORS = Path("distributed/kv_transfer/kv_connector")
_FAMILIES = (
    ("NixlPush", "nixl-push"),
    ("Nixl", "nixl"),
    ("MooncakeStore", "other"),
    ("Mooncake", "mooncake"),
    ("MoRIIO", "moriio"),
)


def connectors(package: Path) -> dict[str, dict[str, Any]]:
    """Registered connectors: family, option keys their module reads, whether the class supports hybrid KV caches."""
    registered = _registered(package / _CONNECTORS / "factory.py")
    table = {}
    for name, module in sorted(registered.items()):
        files = _module_files(package, module)
        family = next((family for prefix, family in _FAMILIES if name.startswith(prefix)), "other")
        options = sorted({key for file in files for key in _option_keys(file)})
        table[name] = {"family": family, "options": options, "hma": _supports_hma(files)}
    return table


def kv_transfer_keys(package: Path) -> list[str]:
    """Fields of KVTransferConfig; any other key stops the engine at start."""
    tree = ast.parse((package / "config/kv_transfer.py").read_text(encoding="utf-8"))
    owner = next(
        node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == "KVTransferConfig"
    )
    return sorted(
        n.target.id for n in owner.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    )


def _registered(factory: Path) -> dict[str, str]:
    found = {}
    for node in ast.walk(ast.parse(factory.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "register_connector"
        ):
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if len(texts) == 3:
                found[texts[0]] = texts[1]
    return found


def _module_files(package: Path, module: str) -> list[Path]:
    """The files of a connector: its module, and the folder it stands in where that folder is its own."""
    path = package.parent / Path(*module.split("."))
    file = path.with_suffix(".py")
    if path.is_dir():
        return sorted(path.rglob("*.py"))
    if file.parent.name == "v1":
        own = file.parent / file.stem.removesuffix("_connector")
        return [file, *sorted(own.rglob("*.py"))]
    return sorted(f for f in file.parent.glob("*.py"))


def _option_keys(file: Path) -> set[str]:
    """String keys read from `kv_connector_extra_config`, by whichever way."""
    found = (_option_key(node) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    return {key for key in found if key is not None}


def _option_key(node: ast.AST) -> str | None:
    """The key of `extra.get("key")`, `extra["key"]`, `"key" in extra` or `get_from_extra_config("key", ...)`."""
    match node:
        case ast.Call(
            func=ast.Attribute(attr="get_from_extra_config"), args=[ast.Constant(value=str(key)), *_]
        ):
            return key
        case ast.Call(func=ast.Attribute(attr="get", value=owner), args=[ast.Constant(value=str(key)), *_]):
            return key if _is_extra(owner) else None
        case ast.Subscript(value=owner, slice=ast.Constant(value=str(key))):
            return key if _is_extra(owner) else None
        case ast.Compare(left=ast.Constant(value=str(key)), comparators=[owner]):
            return key if _is_extra(owner) else None
        case _:
            return None


def _is_extra(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in {"extra_config", "kv_connector_extra_config", "extra", "_extra_config"}


def _supports_hma(files: list[Path]) -> bool:
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any(
                isinstance(b, ast.Name) and b.id == "SupportsHMA" for b in node.bases
            ):
                return True
    return False
