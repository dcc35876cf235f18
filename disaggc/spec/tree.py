"""YAML as a tree in which every key and value knows its place; overlays edit trees, so places follow the winner.

Knows neither the YAML parser nor the spec's fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from disaggc.diagnostics import FieldPath, SourceSpan

Key = str | int
ScalarValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """One value. text: as written, without quotes; plain: whether it stands without quotes."""

    value: ScalarValue
    text: str
    plain: bool
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list. flow: written in brackets."""

    items: tuple[Node, ...]
    flow: bool
    span: SourceSpan


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its value."""

    key_span: SourceSpan
    node: Node


@dataclass(frozen=True, slots=True)
class MappingNode:
    """Keys with values, in the order written. flow: written in braces."""

    entries: Mapping[Key, Entry]
    flow: bool
    span: SourceSpan

    def with_entry(self, key: Key, entry: Entry) -> MappingNode:
        """The same mapping with one entry set."""
        return MappingNode({**self.entries, key: entry}, self.flow, self.span)

    def without(self, key: Key) -> MappingNode:
        """The same mapping without one key."""
        return MappingNode({k: e for k, e in self.entries.items() if k != key}, self.flow, self.span)


Node = ScalarNode | SequenceNode | MappingNode
Plain = ScalarValue | list["Plain"] | dict[Key, "Plain"]


def plain(node: Node) -> Plain:
    """The data alone, as the typed model reads it."""
    match node:
        case ScalarNode():
            return node.value
        case SequenceNode():
            return [plain(item) for item in node.items]
        case MappingNode():
            return {key: plain(entry.node) for key, entry in node.entries.items()}


def merge(below: Node, above: Node) -> Node:
    """`above` laid over `below`: mappings merge key by key, everything else (null too) replaces."""
    if not (isinstance(below, MappingNode) and isinstance(above, MappingNode)):
        return above
    entries = dict(below.entries)
    for key, entry in above.entries.items():
        old = entries.get(key)
        entries[key] = entry if old is None else Entry(entry.key_span, merge(old.node, entry.node))
    return MappingNode(entries, above.flow, above.span)


def child(node: Node, part: Key) -> Node | None:
    """The value under one key or list position, if there is one."""
    if isinstance(node, MappingNode):
        entry = node.entries.get(part)
        return entry.node if entry else None
    if isinstance(node, SequenceNode) and isinstance(part, int) and 0 <= part < len(node.items):
        return node.items[part]
    return None


def descend(node: Node, path: FieldPath) -> Node | None:
    """The value at a path, if there is one."""
    found: Node | None = node
    for part in path:
        found = child(found, part) if found is not None else None
    return found


def walk(node: Node, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Node]]:
    """Every value with its path, parents first."""
    yield path, node
    match node:
        case MappingNode():
            for key, entry in node.entries.items():
                yield from walk(entry.node, (*path, key))
        case SequenceNode():
            for index, item in enumerate(node.items):
                yield from walk(item, (*path, index))
        case ScalarNode():
            return


@dataclass(frozen=True, slots=True)
class SourceMap:
    """Field path -> place. A path that is not in the spec (a default) gives its nearest parent's place."""

    root: Node

    def key(self, path: FieldPath) -> SourceSpan:
        """Place of the key; for a list item and the root, of the value."""
        span, node = self.root.span, self.root
        if isinstance(node, MappingNode):
            span = _start(span)
        for part in path:
            if isinstance(node, MappingNode) and (entry := node.entries.get(part)) is not None:
                span, node = entry.key_span, entry.node
            elif isinstance(node, SequenceNode) and (item := child(node, part)) is not None:
                span, node = (_start(item.span) if isinstance(item, MappingNode) else item.span), item
            else:
                break
        return span

    def value(self, path: FieldPath) -> SourceSpan:
        """Place of the value; of the key where the value is absent or a block of several lines."""
        node = descend(self.root, path)
        if node is None or (not isinstance(node, ScalarNode) and not node.flow and path):
            return self.key(path)
        if not isinstance(node, ScalarNode) and node.span.end_line != node.span.line:
            return self.key(path)
        if isinstance(node, ScalarNode) and node.value is None and not node.text:
            return self.key(path)
        return node.span


def _start(span: SourceSpan) -> SourceSpan:
    """The first column of a long piece: enough to point at."""
    return SourceSpan(span.file, span.line, span.column, span.line, span.column + 1)
