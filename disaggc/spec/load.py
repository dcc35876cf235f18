"""Stage 1's entry: files, overlays and `--set` arguments in, a typed spec with its places out. Imports no catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from disaggc.diagnostics import Diagnostic, FieldPath, Outcome, Severity, has_errors, sort_key
from disaggc.spec.consistency import consistency
from disaggc.spec.edits import SET_FILE, apply_sets
from disaggc.spec.files import Reader, read_file
from disaggc.spec.findings import finding
from disaggc.spec.model import Spec
from disaggc.spec.scalars import OLD_BOOLEANS
from disaggc.spec.scenarios import scenario_specs
from disaggc.spec.sources import Sources
from disaggc.spec.suppressions import Suppressions
from disaggc.spec.tree import MappingNode, ScalarNode, SourceMap, descend, merge, walk
from disaggc.spec.validation import validate

FINDING_LIMIT = 100
"""Most findings of one run; more help nobody."""
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
    spec, scenarios, found = _checked(root)
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


def _checked(root: MappingNode) -> tuple[Spec | None, Mapping[str, Spec], list[Diagnostic]]:
    """The typed spec and every finding. Unknown fields are taken out, so that the rest is still checked."""
    result = validate(root)
    found: list[Diagnostic] = []
    if not isinstance(result, Spec):
        found = result
        if any(diagnostic.code != "DGC110" for diagnostic in found):
            return None, {}, [*found, *_old_booleans(root)]
        for diagnostic in found:
            root = _without(root, diagnostic.path)
        result = validate(root)
        if not isinstance(result, Spec):
            return (
                None,
                {},
                [*found, *_old_booleans(root)],
            )  # a required field was misspelt, which is reported
    own = consistency(result)
    scenarios, scenario_findings = scenario_specs(root, result, own)
    found = [*found, *_old_booleans(root), *own, *scenario_findings]
    usable = not has_errors(diagnostic for diagnostic in found if diagnostic.code != "DGC110")
    return (result if usable else None), scenarios, found


def _without(root: MappingNode, path: FieldPath) -> MappingNode:
    parent = descend(root, path[:-1])
    if not isinstance(parent, MappingNode) or not path:
        return root
    rest = parent.without(path[-1])
    for depth in range(len(path) - 2, -1, -1):
        above = descend(root, path[:depth])
        if not isinstance(above, MappingNode):
            return root
        rest = above.with_entry(path[depth], replace(above.entries[path[depth]], node=rest))
    return rest


def _old_booleans(root: MappingNode) -> list[Diagnostic]:
    """Unquoted `yes`, `no`, `on`, `off` in free maps: text here, a boolean for many a reader."""
    found = []
    for path, node in walk(root):
        if isinstance(node, ScalarNode) and node.plain and node.text in OLD_BOOLEANS and _is_free(path):
            meant = str(OLD_BOOLEANS[node.text]).lower()
            message = f"`{path[-1]}: {node.text}` is ambiguous: a text here, a boolean for older YAML readers"
            hint = f'write `{meant}`, or `"{node.text}"` for text'
            found.append(finding("DGC104", message, node.span, help=hint))
    return found


def _is_free(path: FieldPath) -> bool:
    """Inside an engine's `settings` or its connector's `options`, where the type of a value is not known here."""
    engine = path[3:] if len(path) > 3 and (path[0], path[2]) == ("services", "engine") else ()
    return "settings" in engine[:2] or engine[:2] == ("connector", "options")


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
