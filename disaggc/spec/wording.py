"""Trees and values in the words of a message: what stands there, and what to write instead."""

from __future__ import annotations

import re

from disaggc.spec.scalars import OLD_BOOLEANS
from disaggc.spec.tree import MappingNode, Node, ScalarNode, SequenceNode


def type_help(kind: str, node: Node | None, name: str) -> str | None:
    """What to write for a value of another type; kind: pydantic's error type."""
    text = clip(node.text) if isinstance(node, ScalarNode) else ""
    match kind:
        case _ if not isinstance(node, ScalarNode) or node.value is None:
            return None
        case "string_type":
            version = f"a vLLM version has three parts, which keep it a text: write `{text}.0`"
            return version if name == "vllm" else f'quote it: `"{text}"`'
        case "bool_type" if node.text in OLD_BOOLEANS:
            return f"write `{str(OLD_BOOLEANS[node.text]).lower()}`"
        case "int_type" | "int_from_float" | "float_type":
            return _number_help(node)
        case "tuple_type" | "list_type":
            return f"write `[{text}]`"
        case _:
            return None


def _number_help(node: ScalarNode) -> str | None:
    if isinstance(node.value, float) and node.value.is_integer():
        return f"write `{int(node.value)}`"
    if not isinstance(node.value, str):
        return None
    text = node.value.replace("_", "").replace(",", "")
    thousands = re.fullmatch(r"([0-9]{1,9})\s*[kK]", text)
    if thousands:
        return f"write `{int(thousands[1]) * 1024}` or `{int(thousands[1]) * 1000}`"
    if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]+)?", text):
        return None
    return f"write `{text}`" if node.plain else f"write `{text}` without quotes"


def described(node: Node | None) -> str:
    """`a list`, `the text ...`: what stands at a field."""
    if isinstance(node, ScalarNode):
        return _described_scalar(node)
    if node is None:
        return "absent"
    return "a mapping" if isinstance(node, MappingNode) else "a list"


def _described_scalar(node: ScalarNode) -> str:
    if node.value is None:
        return "empty"
    if isinstance(node.value, bool):
        return f"`{node.text}`"
    kind = "text" if isinstance(node.value, str) else "number"
    return f"the {kind} `{clip(node.text)}`"


def either(choices: list[str]) -> str:
    """`a`, `b` or `c`."""
    quoted = [f"`{choice}`" for choice in choices]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"


def text_of(node: Node | None) -> str:
    """The value as written."""
    return node.text if isinstance(node, ScalarNode) else described(node)


def size_of(node: Node | None) -> int:
    """How many entries a mapping or a list has."""
    if isinstance(node, MappingNode):
        return len(node.entries)
    return len(node.items) if isinstance(node, SequenceNode) else 0


def clip(text: object) -> str:
    """At most 40 printable characters that close no backtick."""
    shown = str(text).replace("`", "'")
    shown = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown[:60]
    )
    return shown if len(shown) <= 40 else shown[:37] + "..."
