"""Single values set by a dotted path: `--set` arguments and the entries of `scenarios`, by the same code.

Every `--set` argument is one line of a virtual file called `--set`, so that findings point into the argument.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from disaggc.diagnostics import Diagnostic, SourceSpan, path_text
from disaggc.spec.findings import finding
from disaggc.spec.lines import Lines
from disaggc.spec.tree import Entry, Key, MappingNode, Node, ScalarNode
from disaggc.spec.yaml_budget import DEPTH_LIMIT
from disaggc.spec.yaml_source import parse

SET_FILE = "--set"
_SEGMENT = re.compile(r"""(?P<bare>[^.=\s"']+)|"(?P<double>[^"]*)"|'(?P<single>[^']*)'""")
_MALFORMED = 'write `--set a.b.c=value`; quote a key that holds a dot: `a."b.c"`'


@dataclass(frozen=True, slots=True)
class Edit:
    """One value to set. segments: keys with their places."""

    segments: tuple[tuple[str, SourceSpan], ...]
    value: Node

    @property
    def path(self) -> tuple[str, ...]:
        """The keys alone."""
        return tuple(name for name, _ in self.segments)


def read_set(argument: str, line: int) -> Edit | Diagnostic:
    """`a.b.c=value` with the value as YAML; line: the argument's number, from 1."""
    whole = SourceSpan(SET_FILE, line, 1, line, len(argument) + 1)
    if "\n" in argument or "\r" in argument:
        return finding("DGC121", "a --set argument is one line", whole, help="use a file with `-f`")
    names, end = _segments(argument)
    if names is None or end >= len(argument) or argument[end] != "=":
        return finding(
            "DGC121", f"`{argument[:60]}` does not name a field and a value", whole, help=_MALFORMED
        )
    if len(names) > DEPTH_LIMIT:
        return finding("DGC121", _too_deep(argument, len(names)), whole, help=_MALFORMED)
    segments = tuple(
        (name, SourceSpan(SET_FILE, line, start + 1, line, stop + 1)) for name, start, stop in names
    )
    text = "\n" * (line - 1) + " " * (end + 1) + argument[end + 1 :]
    place = SourceSpan(SET_FILE, line, end + 2, line, len(argument) + 1)
    if not argument[end + 1 :].strip():
        return Edit(segments, ScalarNode(None, "", plain=True, span=place))
    outcome = parse(text, SET_FILE)
    if outcome.value is None or outcome.diagnostics:
        first = outcome.diagnostics[0]
        message = f"the value of `{path_text(tuple(n for n, _ in segments))}` cannot be read: {first.message}"
        return finding("DGC121", message, first.span or place, help=first.help)
    return Edit(segments, outcome.value.root)


def read_path(text: str, span: SourceSpan, value: Node) -> Edit | Diagnostic:
    """A dotted path written as a key of the spec."""
    names, end = _segments(text)
    if names is None or end != len(text):
        return finding(
            "DGC115",
            f"`{text[:60]}` is not a dotted path",
            span,
            help="write e.g. `services.chat.workload.rag.rate`",
        )
    if len(names) > DEPTH_LIMIT:
        return finding("DGC115", _too_deep(text, len(names)), span)
    return Edit(tuple((name, span) for name, _, _ in names), value)


def _too_deep(path: str, keys: int) -> str:
    return (
        f"`{path[:60]}` names {keys} keys one below the other, {DEPTH_LIMIT} is the most a document may nest"
    )


def _segments(text: str) -> tuple[list[tuple[str, int, int]] | None, int]:
    """The keys of a dotted path with their columns, and where the path ends; None where it is malformed."""
    found: list[tuple[str, int, int]] = []
    at = 0
    while True:
        match = _SEGMENT.match(text, at)
        if match is None:
            return None, at
        found.append((match["bare"] or match["double"] or match["single"] or "", match.start(), match.end()))
        at = match.end()
        if at >= len(text) or text[at] != ".":
            return found, at
        at += 1


def apply(root: MappingNode, edit: Edit) -> MappingNode | Diagnostic:
    """The tree with one value set; mappings on the way are made where they are absent."""
    return _applied(root, edit, 0)


def _applied(node: MappingNode, edit: Edit, depth: int) -> MappingNode | Diagnostic:
    name, span = edit.segments[depth]
    key: Key = name
    if (
        name.isascii()
        and name.isdigit()
        and len(name) < 10
        and (depth and edit.segments[depth - 1][0] == "histogram")
    ):
        key = int(name)
    if depth == len(edit.segments) - 1:
        return node.with_entry(key, Entry(span, edit.value))
    entry = node.entries.get(key)
    below = entry.node if entry is not None else MappingNode({}, flow=True, span=span)
    if isinstance(below, ScalarNode) and below.value is None:
        below = MappingNode({}, flow=True, span=span)
    if not isinstance(below, MappingNode):
        kind = "a single value" if isinstance(below, ScalarNode) else "a list, which is replaced as a whole"
        where = path_text(edit.path[: depth + 1])
        return finding(
            "DGC121", f"`{where}` is {kind}; it has no field `{edit.segments[depth + 1][0]}`", span
        )
    inner = _applied(below, edit, depth + 1)
    if isinstance(inner, Diagnostic):
        return inner
    return node.with_entry(key, Entry(entry.key_span if entry is not None else span, inner))


def apply_sets(root: MappingNode, arguments: Sequence[str]) -> tuple[MappingNode, list[Diagnostic]]:
    """The tree with every argument applied in order, and what is wrong with the others."""
    findings: list[Diagnostic] = []
    for line, argument in enumerate(arguments, 1):
        edit = read_set(argument, line)
        edited = apply(root, edit) if isinstance(edit, Edit) else edit
        if isinstance(edited, Diagnostic):
            findings.append(edited)
        else:
            root = edited
    return root, findings


def set_lines(arguments: Sequence[str]) -> Lines:
    """The virtual file that places in `--set` point into; for renderers that show the line."""
    return Lines("\n".join(arguments), SET_FILE)
