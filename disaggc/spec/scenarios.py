"""Scenarios: the same spec under other traffic, made by the same code as `--set` and checked as a whole spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from disaggc.diagnostics import Diagnostic, Label, Severity
from disaggc.spec.consistency import consistency
from disaggc.spec.edits import Edit, apply, read_path
from disaggc.spec.model import Spec
from disaggc.spec.tree import MappingNode, SourceMap, descend
from disaggc.spec.validation import validate

_DEPTH = 5
"""services, name, workload, class, field: the least that names a value of a class."""


def scenario_specs(
    root: MappingNode, spec: Spec, known: Sequence[Diagnostic]
) -> tuple[Mapping[str, Spec], list[Diagnostic]]:
    """The spec of every scenario that holds, and what is wrong with the others. known: findings of the spec itself."""
    specs: dict[str, Spec] = {}
    found: list[Diagnostic] = []
    for name in spec.scenarios:
        result = _scenario(root, name, known)
        if isinstance(result, Spec):
            specs[name] = result
        else:
            found.extend(result)
    return specs, found


def _scenario(root: MappingNode, name: str, known: Sequence[Diagnostic]) -> Spec | list[Diagnostic]:
    changes = descend(root, ("scenarios", name))
    found: list[Diagnostic] = []
    edited = root.without("scenarios")
    for key, entry in changes.entries.items() if isinstance(changes, MappingNode) else ():
        edit = read_path(str(key), entry.key_span, entry.node)
        refused = _refused(edit, root) if isinstance(edit, Edit) else edit
        if isinstance(refused, Diagnostic):
            found.append(refused)
            continue
        assert isinstance(edit, Edit)  # noqa: S101 - narrows the type: the other case was refused above
        applied = apply(edited, edit)
        if isinstance(applied, Diagnostic):
            found.append(replace(applied, code="DGC115"))
        else:
            edited = applied
    if found:
        return found
    result = validate(edited)
    problems = result if not isinstance(result, Spec) else [p for p in consistency(result) if p not in known]
    if isinstance(result, Spec) and not problems:
        return result
    return [_of_scenario(problem, name, SourceMap(edited)) for problem in problems]


def _refused(edit: Edit, root: MappingNode) -> Diagnostic | None:
    """A scenario changes traffic and nothing else: the layout must hold in all of them."""
    path, span = edit.path, edit.segments[0][1]
    if len(path) < _DEPTH or path[0] != "services" or path[2] != "workload":
        message = f"a scenario changes fields of workload classes only, not `{'.'.join(path)[:60]}`"
        help_text = "write e.g. `services.chat.workload.rag.rate: 4/s`"
        return Diagnostic("DGC115", Severity.ERROR, message, span=span, help=help_text)
    if descend(root, path[:4]) is None:
        message = f"`{'.'.join(path[:4])[:60]}` does not exist, a scenario changes what is there"
        return Diagnostic("DGC115", Severity.ERROR, message, span=span)
    return None


def _of_scenario(problem: Diagnostic, name: str, sources: SourceMap) -> Diagnostic:
    span = sources.key(problem.path) if problem.at_key else sources.value(problem.path)
    labels = tuple(Label(label.path, label.text, sources.value(label.path)) for label in problem.labels)
    note = f"with scenario `{name}` applied"
    return replace(problem, span=span, labels=labels, notes=(*problem.notes, note))
