"""YAML text to a tree with a place for every key and value; the parser is PyYAML's C one, the meaning is ours.

Refuses what YAML would let pass silently: duplicate keys, several documents, tags, keys that are not text,
aliases that expand without bound. Knows nothing of the spec's fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yaml import events as ev
from yaml.cyaml import CParser  # type: ignore[attr-defined]
from yaml.error import MarkedYAMLError, YAMLError

from disaggc.diagnostics import Diagnostic, Label, Outcome, Severity, SourceSpan
from disaggc.spec.findings import finding
from disaggc.spec.lines import Lines
from disaggc.spec.scalars import Ambiguous, read_plain
from disaggc.spec.tree import Entry, Key, MappingNode, Node, ScalarNode, SequenceNode
from disaggc.spec.wording import clip
from disaggc.spec.yaml_budget import Budget, StopReadingError
from disaggc.spec.yaml_errors import control_character, syntax_error

if TYPE_CHECKING:
    from collections.abc import Callable

_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")
_PLAIN_TAGS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass(frozen=True, slots=True)
class Parsed:
    """One document. scalars: character ranges of all values and keys, where a `#` is no comment."""

    root: Node
    lines: Lines
    scalars: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class _Anchored:
    node: Node
    values: int
    height: int


def parse(text: str, file: str) -> Outcome[Parsed]:
    """The document of a text, or the first syntax error. Never raises, whatever the text."""
    lines = Lines(text, file)
    refused = control_character(lines)
    if refused is not None:
        return Outcome(None, (refused,))
    builder = _Builder(lines)
    try:
        root = builder.document()
    except StopReadingError as stop:
        return Outcome(None, (*builder.findings, stop.finding))
    except YAMLError as problem:
        marked = problem if isinstance(problem, MarkedYAMLError) else MarkedYAMLError(problem=str(problem))
        return Outcome(None, (*builder.findings, syntax_error(marked, lines)))
    return Outcome(Parsed(root, lines, tuple(builder.scalars)), tuple(builder.findings))


class _Builder:
    """Follows the parser's events once. Recursion is bounded by DEPTH_LIMIT."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.findings: list[Diagnostic] = []
        self.scalars: list[tuple[int, int]] = []
        parser = CParser(lines.text)
        self._next: Callable[[], Any] = parser.get_event
        self._anchors: dict[str, _Anchored | None] = {}
        self._budget = Budget()

    def document(self) -> Node:
        """The one document of the text."""
        self._next()
        first = self._next()
        if isinstance(first, ev.StreamEndEvent):
            raise StopReadingError(finding("DGC105", "the file is empty", self.lines.span(0, 0)))
        root = self._node(self._next(), 0)
        self._next()
        after = self._next()
        if not isinstance(after, ev.StreamEndEvent):
            message = "a second document begins here, one file holds one document"
            help_text = "remove the `---` line or put the second document into its own file"
            raise StopReadingError(finding("DGC105", message, self._span(after), help=help_text))
        return root

    def _span(self, event: Any) -> SourceSpan:
        return self.lines.span(event.start_mark.index, event.end_mark.index)

    def _node(self, event: ev.Event, depth: int) -> Node:
        if isinstance(event, ev.AliasEvent):
            return self._alias(event, depth)
        self._budget.count(1, self._span(event))
        self._budget.enter(depth, self._span(event))
        anchor = getattr(event, "anchor", None)
        if anchor is None:
            return self._fresh(event, depth)
        self._anchors[anchor] = None
        budget = self._budget
        before, deepest = budget.values, budget.deepest
        budget.deepest = depth
        node = self._fresh(event, depth)
        self._anchors[anchor] = _Anchored(node, budget.values - before + 1, budget.deepest - depth)
        budget.deepest = max(deepest, budget.deepest)
        return node

    def _fresh(self, event: ev.Event, depth: int) -> Node:
        if isinstance(event, ev.ScalarEvent):
            return self._scalar(event)
        self._refuse_tag(event)
        if isinstance(event, ev.SequenceStartEvent):
            return self._sequence(event, depth)
        return self._mapping(event, depth)

    def _alias(self, event: Any, depth: int) -> Node:
        name = event.anchor
        anchored = self._anchors.get(name)
        if anchored is None:
            inside = name in self._anchors
            message = (
                f"alias `*{name}` contains itself" if inside else f"alias `*{name}` has no anchor before it"
            )
            raise StopReadingError(finding("DGC105" if inside else "DGC102", message, self._span(event)))
        self._budget.count(anchored.values, self._span(event))
        self._budget.enter(depth + anchored.height, self._span(event))
        return anchored.node

    def _refuse_tag(self, event: ev.Event) -> None:
        tag = getattr(event, "tag", None)
        if tag not in _PLAIN_TAGS:
            message = f"the tag `{clip(str(tag))}` has no meaning here"
            self.findings.append(finding("DGC105", message, self._span(event), help="remove the tag"))

    def _scalar(self, event: Any) -> ScalarNode:
        start, end = event.start_mark.index, event.end_mark.index
        text, span = event.value, self.lines.span(start, end)
        if event.style in ("|", ">"):
            start += (
                len(self.lines.line_text(span.line)) - span.column + 1
            )  # the header line may end in a comment
        if end > start:
            self.scalars.append((start, end))
        if event.style or event.tag in _TEXT_TAGS:
            return ScalarNode(text, text, plain=False, span=span)
        self._refuse_tag(event)
        value = read_plain(text)
        if isinstance(value, Ambiguous):
            message, hint = (
                f"`{clip(text)}` is ambiguous: {value.reading}",
                f'write `"{clip(text)}"` for text',
            )
            self.findings.append(finding("DGC104", message, span, help=hint))
            value = text
        return ScalarNode(value, text, plain=True, span=span)

    def _sequence(self, start: ev.SequenceStartEvent, depth: int) -> SequenceNode:
        items: list[Node] = []
        event = self._next()
        while not isinstance(event, ev.SequenceEndEvent):
            items.append(self._node(event, depth + 1))
            event = self._next()
        span = self._collection_span(start, event, items[-1].span if items else None)
        return SequenceNode(tuple(items), bool(start.flow_style), span)

    def _mapping(self, start: ev.Event, depth: int) -> MappingNode:
        entries: dict[Key, Entry] = {}
        merged: list[Node] = []
        last: SourceSpan | None = None
        event = self._next()
        while not isinstance(event, ev.MappingEndEvent):
            key = self._node(event, depth + 1)
            value = self._node(self._next(), depth + 1)
            last = value.span
            event = self._next()
            if isinstance(key, ScalarNode) and key.plain and key.text == "<<":
                merged.extend(self._merged(value, key.span))
                continue
            name = self._key(key)
            if name is None:
                continue
            if name in entries:
                self._duplicate(name, key.span, entries[name].key_span)
            else:
                entries[name] = Entry(key.span, value)
        for node in merged:
            if isinstance(node, MappingNode):
                entries = {**node.entries, **entries}
        flow = bool(getattr(start, "flow_style", False))
        return MappingNode(entries, flow, self._collection_span(start, event, last))

    def _key(self, key: Node) -> Key | None:
        """Text, or a whole number (histogram bounds); other keys are refused."""
        if not isinstance(key, ScalarNode):
            hint = "quote the text" if self.lines.line_text(key.span.line).lstrip().find("{{") >= 0 else None
            self.findings.append(
                finding("DGC105", "a key is a text, not a mapping or a list", key.span, help=hint)
            )
            return None
        if isinstance(key.value, str) or (isinstance(key.value, int) and not isinstance(key.value, bool)):
            return key.value
        message = f"the key `{clip(key.text)}` is read as {_kind(key.value)}, a key is text"
        self.findings.append(finding("DGC104", message, key.span, help=f'write `"{clip(key.text)}"`'))
        return key.text

    def _duplicate(self, name: Key, span: SourceSpan, first: SourceSpan) -> None:
        label = Label((), "first here", first)
        message = f"`{clip(str(name))}` stands twice in one mapping"
        self.findings.append(
            Diagnostic(
                "DGC103", Severity.ERROR, message, span=span, labels=(label,), help="keep one of the two"
            )
        )

    def _merged(self, value: Node, span: SourceSpan) -> list[Node]:
        nodes: list[Node] = list(value.items) if isinstance(value, SequenceNode) else [value]
        if all(isinstance(node, MappingNode) for node in nodes):
            return nodes
        self.findings.append(finding("DGC105", "`<<` merges a mapping or a list of mappings", span))
        return []

    def _collection_span(self, start: Any, end: Any, last: SourceSpan | None) -> SourceSpan:
        """Flow collections end at their bracket; block ones with their last value, not after trailing comments."""
        span = self.lines.span(start.start_mark.index, end.end_mark.index)
        if getattr(start, "flow_style", False) or last is None:
            return span
        end_line, end_column = max((span.line, span.column), (last.end_line, last.end_column))
        end_line, end_column = min((end_line, end_column), (span.end_line, span.end_column))
        return SourceSpan(span.file, span.line, span.column, end_line, end_column)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    return "true or false" if isinstance(value, bool) else "a number"
