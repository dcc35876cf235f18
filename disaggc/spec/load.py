"""Stage 1's entry: files, overlays and `--set` arguments in, a typed spec with its places out. Imports no catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from disaggc.diagnostics import Diagnostic, FieldPath, Outcome, Severity, sort_key
from disaggc.spec.checking import FINDING_LIMIT, checked
from disaggc.spec.edits import SET_FILE, apply_sets
from disaggc.spec.files import Reader, read_file
from disaggc.spec.model import Spec
from disaggc.spec.sources import Sources
from disaggc.spec.suppressions import Suppressions
from disaggc.spec.tree import MappingNode, SourceMap, merge

_FATAL = frozenset({"DGC101", "DGC102", "DGC120"})
"""Findings after which parts of the spec are absent, so that checking the rest would invent mistakes."""


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A spec that holds in itself. scenarios: each with its changes applied; files: everything that was read."""

    spec: Spec
    scenarios: Mapping[str, Spec]
    sources: SourceMap
    suppressions: Suppressions
    files: tuple[Path, ...]
    directory: Path
    """Where the first file stands; paths given by `--set` begin here."""
    folders: Mapping[str, Path]
    """Name of a file as diagnostics show it -> the folder it stands in."""

    def beside(self, path: FieldPath, text: str) -> Path:
        """The file that a field names: relative to the file in which the field stands."""
        return self.folders.get(self.sources.value(path).file, self.directory) / text


def load(paths: Sequence[Path], *, sets: Sequence[str] = (), read: Reader = read_file) -> Outcome[LoadedSpec]:
    """Files merged in order (later wins), `--set` applied, `from:` followed, every check that needs no catalog.

    The value is present when the spec can be used, also beside errors about unknown fields; the outcome then has failed
    all the same, but later stages can add what they see. Diagnostics are placed and sorted.
    """
    sources = Sources(read)
    documents = [sources.document(path) for path in paths]
    root: MappingNode | None = None
    for document in documents:
        merged = document if root is None or document is None else merge(root, document)
        root = merged if isinstance(merged, MappingNode) else root
    if root is None or any(document is None for document in documents) or _fatal(sources.findings):
        return Outcome(None, _limited(sorted(sources.findings, key=sort_key)))
    root, set_findings = apply_sets(root, sets)
    source_map = SourceMap(root)
    spec, scenarios, found = checked(root)
    placed = [
        _as_set(diagnostic) for diagnostic in place((*sources.findings, *set_findings, *found), source_map)
    ]
    diagnostics = _limited(sorted(placed, key=sort_key))
    if spec is None:
        return Outcome(None, diagnostics)
    loaded = LoadedSpec(
        spec,
        scenarios,
        source_map,
        sources.suppressions,
        tuple(sources.paths.values()),
        paths[0].parent,
        {name: path.parent for name, path in sources.paths.items()},
    )
    return Outcome(loaded, diagnostics)


def place(diagnostics: Iterable[Diagnostic], sources: SourceMap) -> tuple[Diagnostic, ...]:
    """The same findings with the places of their paths and labels, in reading order."""
    return tuple(sorted((_placed(diagnostic, sources) for diagnostic in diagnostics), key=sort_key))


def _placed(diagnostic: Diagnostic, sources: SourceMap) -> Diagnostic:
    labels = tuple(
        label if label.span is not None else replace(label, span=sources.value(label.path))
        for label in diagnostic.labels
    )
    span = diagnostic.span
    if span is None:
        span = sources.key(diagnostic.path) if diagnostic.at_key else sources.value(diagnostic.path)
    return replace(diagnostic, span=span, labels=labels)


def _fatal(findings: Iterable[Diagnostic]) -> bool:
    return any(diagnostic.code in _FATAL for diagnostic in findings)


def _as_set(diagnostic: Diagnostic) -> Diagnostic:
    """A `--set` argument that names no field is a mistake of the argument."""
    if diagnostic.code == "DGC110" and diagnostic.span is not None and diagnostic.span.file == SET_FILE:
        return replace(diagnostic, code="DGC121")
    return diagnostic


def _limited(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    if len(diagnostics) <= FINDING_LIMIT:
        return tuple(diagnostics)
    errors_first = sorted(diagnostics, key=lambda d: d.severity is not Severity.ERROR)[:FINDING_LIMIT]
    shown = sorted(errors_first, key=sort_key)
    note = f"{len(diagnostics) - FINDING_LIMIT} more findings are not shown"
    return (*shown[:-1], replace(shown[-1], notes=(*shown[-1].notes, note)))
