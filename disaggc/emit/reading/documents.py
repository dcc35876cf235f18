"""Reads YAML as other tools do, and stricter: one mapping never names a key twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _SafeLoader
except ImportError:  # PyYAML built without libyaml: the same rules, slower
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]


class UnreadableDocumentError(ValueError):
    """Not YAML that every parser reads alike; the message says where."""


class _Strict(_SafeLoader):
    """SafeLoader that refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        """The mapping, if no key stands in it twice."""
        seen = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(set(map(repr, seen))) != len(seen):
            raise UnreadableDocumentError(f"a key stands twice near line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep=deep)


def read_documents(text: str) -> tuple[object, ...]:
    """Every document of the text."""
    try:
        return tuple(yaml.load_all(text, Loader=_Strict))
    except yaml.YAMLError as problem:
        raise UnreadableDocumentError(str(problem)) from None


def at(document: object, *path: str | int) -> object:
    """The value at a path; None where there is nothing."""
    for key in path:
        if isinstance(document, dict):
            document = document.get(key)
        elif isinstance(document, list) and isinstance(key, int) and -len(document) <= key < len(document):
            document = document[key]
        else:
            return None
    return document


def interpolated(text: str) -> str:
    """What compose makes of a text in which every `$` must be escaped."""
    if "$" not in text:
        return text
    out, position = [], 0
    while position < len(text):
        if text[position] == "$":
            if text[position : position + 2] != "$$":
                raise UnreadableDocumentError(f"a variable stands in {text[:60]!r}")
            position += 1
        out.append(text[position])
        position += 1
    return "".join(out)


def all_interpolated(value: object) -> object:
    """The same for every text of a document; keys are not interpolated."""
    match value:
        case str():
            return interpolated(value)
        case dict():
            return {key: all_interpolated(item) for key, item in value.items()}
        case list():
            return [all_interpolated(item) for item in value]
        case _:
            return value
