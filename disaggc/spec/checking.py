"""Every check of a whole tree in one run: its shape, what disagrees, its scenarios.

A mistake in one field must not hide those elsewhere: wrong fields are cut out and the rest is checked without them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from disaggc.diagnostics import Diagnostic, FieldPath, has_errors
from disaggc.spec.consistency import consistency
from disaggc.spec.findings import finding
from disaggc.spec.model import Spec
from disaggc.spec.scalars import OLD_BOOLEANS
from disaggc.spec.scenarios import scenario_specs
from disaggc.spec.tree import MappingNode, ScalarNode, descend, walk
from disaggc.spec.validation import validate

FINDING_LIMIT = 100
"""Most findings of one run; more help nobody."""


def checked(root: MappingNode) -> tuple[Spec | None, Mapping[str, Spec], list[Diagnostic]]:
    """The typed spec, its scenarios, and every finding (not yet placed).

    The spec is there when it can be used: without errors, or with unknown fields only, which are left out.
    """
    result = validate(root)
    if isinstance(result, Spec):
        return _whole(root, result, _old_booleans(root))
    found = [*result, *_old_booleans(root)]
    if len(result) > FINDING_LIMIT:
        return None, {}, found
    cuts = [_cut(diagnostic.path) for diagnostic in result]
    rest = root
    for path in cuts:
        rest = _without(rest, path)
    again = validate(rest)
    if not isinstance(again, Spec):
        return None, {}, found  # a required field is wrong or absent
    if all(diagnostic.code == "DGC110" for diagnostic in result):
        return _whole(rest, again, found)
    return None, {}, [*found, *(other for other in consistency(again) if not _depends(other, cuts))]


def _whole(
    root: MappingNode, spec: Spec, found: Sequence[Diagnostic]
) -> tuple[Spec | None, Mapping[str, Spec], list[Diagnostic]]:
    own = consistency(spec)
    scenarios, of_scenarios = scenario_specs(root, spec, own)
    every = [*found, *own, *of_scenarios]
    usable = not has_errors(diagnostic for diagnostic in every if diagnostic.code != "DGC110")
    return (spec if usable else None), scenarios, every


def _cut(path: FieldPath) -> FieldPath:
    """What to take out for a mistake at a path: the field; for an item of a list the whole list."""
    names = [index for index, part in enumerate(path) if isinstance(part, str)]
    return path[: names[-1] + 1] if names and isinstance(path[-1], int) else path


def _depends(diagnostic: Diagnostic, cuts: Sequence[FieldPath]) -> bool:
    """Whether a finding may only follow from a field that was cut out: it speaks of that field's neighbours."""
    near = {path[:-1] for path in cuts}
    places = (diagnostic.path, *(label.path for label in diagnostic.labels))
    return any(path in near or path[:-1] in near for path in places)


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
