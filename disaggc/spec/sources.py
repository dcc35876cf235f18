"""The files of one spec: each read once, and `from: path` followed from the file that says it.

`from:` may stand in `cluster`, in a service, in its `workload` and in a workload class. The other file's document
is that part; fields beside `from:` are laid over it. Paths are relative to the file that says them; absolute paths and
`..` are allowed, since a spec may read whatever its author may read. Knows no types of fields.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from disaggc.diagnostics import Diagnostic, Severity, SourceSpan
from disaggc.spec.files import SPEC_LIMIT, Reader, Unreadable, decode
from disaggc.spec.findings import finding
from disaggc.spec.suppressions import Suppressions, find_suppressions
from disaggc.spec.tree import Entry, Key, MappingNode, Node, ScalarNode, merge
from disaggc.spec.yaml_source import parse

FILE_LIMIT = 64
"""Most files of one spec."""


@dataclass(slots=True)
class Sources:
    """Reads the files of one spec and keeps what they say about themselves."""

    read: Reader
    findings: list[Diagnostic] = field(default_factory=list)
    suppressions: Suppressions = field(default_factory=Suppressions)
    paths: dict[str, Path] = field(default_factory=dict)
    """Name as shown in diagnostics -> path."""
    _roots: dict[str, MappingNode | Unreadable | None] = field(default_factory=dict)

    def document(self, path: Path) -> MappingNode | None:
        """The mapping in a file given by the user, with every `from:` followed."""
        root = self._root(path)
        if isinstance(root, Unreadable):
            span = SourceSpan(str(path), root.line, root.column, root.line, root.column)
            self.findings.append(finding("DGC101", f"`{path}`: {root.message}", span, help=root.help))
            return None
        return self._expanded(root) if root is not None else None

    def _root(self, path: Path) -> MappingNode | Unreadable | None:
        """The document of one file, read once; None where its syntax is broken (already reported)."""
        name = str(path)
        if name not in self._roots:
            if len(self._roots) >= FILE_LIMIT:
                return Unreadable(f"the spec has more than {FILE_LIMIT} files")
            self.paths[name] = path
            self._roots[name] = self._parsed(path)
        return self._roots[name]

    def _parsed(self, path: Path) -> MappingNode | Unreadable | None:
        content = self.read(path, SPEC_LIMIT)
        text = decode(content) if isinstance(content, bytes) else content
        if isinstance(text, Unreadable):
            return text
        outcome = parse(text, str(path))
        self.findings.extend(outcome.diagnostics)
        if outcome.value is None:
            return None
        self.suppressions += find_suppressions(outcome.value)
        root = outcome.value.root
        if isinstance(root, MappingNode):
            return root
        if isinstance(root, ScalarNode) and root.value is None:
            self.findings.append(finding("DGC105", "the file is empty", outcome.value.lines.span(0, 0)))
            return None
        span = replace(root.span, end_line=root.span.line, end_column=root.span.column + 1)
        kind = "a single value" if isinstance(root, ScalarNode) else "a list"
        self.findings.append(finding("DGC105", f"the document is {kind}, a mapping is wanted", span))
        return None

    def _expanded(self, root: MappingNode) -> MappingNode:
        root = self._inside(root, "cluster")
        services = root.entries.get("services")
        if services is None or not isinstance(services.node, MappingNode):
            return root
        expanded = services.node
        for name in services.node.entries:
            expanded = self._inside(expanded, name)
            service = expanded.entries[name].node
            if isinstance(service, MappingNode):
                service = self._inside(service, "workload")
                service = self._classes(service)
                expanded = expanded.with_entry(name, Entry(expanded.entries[name].key_span, service))
        return root.with_entry("services", Entry(services.key_span, expanded))

    def _classes(self, service: MappingNode) -> MappingNode:
        workload = service.entries.get("workload")
        if workload is None or not isinstance(workload.node, MappingNode):
            return service
        classes = workload.node
        for name in workload.node.entries:
            classes = self._inside(classes, name)
        return service.with_entry("workload", Entry(workload.key_span, classes))

    def _inside(self, parent: MappingNode, key: Key) -> MappingNode:
        entry = parent.entries.get(key)
        if entry is None or not isinstance(entry.node, MappingNode) or "from" not in entry.node.entries:
            return parent
        return parent.with_entry(key, Entry(entry.key_span, self._followed(entry.node, ())))

    def _followed(self, part: MappingNode, chain: tuple[str, ...]) -> Node:
        """The part with its `from:` replaced by what it names. chain: real paths on the way here."""
        entry = part.entries["from"]
        said = entry.node
        if isinstance(said, MappingNode):
            return part
        beside = part.without("from")
        if not isinstance(said, ScalarNode) or not isinstance(said.value, str) or not said.value:
            empty = isinstance(said, ScalarNode) and not said.text
            span = entry.key_span if empty else said.span
            self.findings.append(finding("DGC120", "`from` wants the path of a file", span))
            return beside
        here = self.paths[said.span.file]
        target = (
            Path(os.path.normpath(here.parent / said.value)) if "\0" not in said.value else Path(said.value)
        )
        chain = (
            *(chain or (os.path.realpath(here),)),
            os.path.realpath(target) if "\0" not in said.value else "",
        )
        if chain[-1] in chain[:-1]:
            self._cycle(chain, said.span)
            return beside
        root = self._root(target)
        if isinstance(root, Unreadable):
            place = f" ({root.line}:{root.column})" if (root.line, root.column) != (1, 1) else ""
            message = f"`from: {said.value[:80]}` cannot be followed: {root.message}{place}"
            self.findings.append(finding("DGC120", message, said.span, help=root.help))
            return beside
        if root is None:
            return beside
        below = self._followed(root, chain) if "from" in root.entries else root
        return merge(below, beside) if beside.entries else below

    def _cycle(self, chain: tuple[str, ...], span: SourceSpan) -> None:
        names = [os.path.relpath(path, Path(chain[0]).parent) for path in chain]
        note = " -> ".join(names[names.index(names[-1]) :])
        self.findings.append(
            Diagnostic(
                "DGC120",
                Severity.ERROR,
                "`from` leads back to a file on the way here",
                span=span,
                notes=(note,),
            )
        )
