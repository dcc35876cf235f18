"""A field that does not exist where it stands: which one was meant, or where it belongs."""

from __future__ import annotations

from disaggc.diagnostics import Diagnostic, FieldPath, Label, Severity, path_text
from disaggc.spec.near import misspelt, nearest
from disaggc.spec.shape import ANY, at, paths, spec_shape
from disaggc.spec.tree import MappingNode, Node, descend
from disaggc.spec.wording import clip

_SINGULAR = {"services": "service", "workload": "class", "nodes": "group"}
_ENGINE_LEVELS = ("engine", "prefill", "decode")
_SYNONYMS = {"tpot": "itl", "e2el": "e2e", "latency": "e2e"}
"""Names of metrics elsewhere; by letters alone they would pass for another metric."""


def unknown_field(path: FieldPath, root: Node) -> Diagnostic:
    """Unknown fields are errors: an ignored field is a silent mistake."""
    parent, name = path[:-1], str(path[-1])
    level, beside = at(parent), descend(root, parent)
    if level is not None and name in level.fields and isinstance(beside, MappingNode):
        return _excluded(path, beside)
    where = f"in `{path_text(parent)}`" if parent else "at the top of the document"
    message = f"there is no field `{clip(name)}` {where}"
    return Diagnostic("DGC110", Severity.ERROR, message, path, help=_help(parent, name, root), at_key=True)


def _excluded(path: FieldPath, beside: MappingNode) -> Diagnostic:
    """A field of another form of the same value: it exists, but not beside what chose the form."""
    others = [key for key in beside.entries if key != path[-1]]
    listed = ", ".join(f"`{clip(key)}`" for key in others)
    labels = tuple(Label((*path[:-1], key), "not beside this") for key in others[:1])
    message = f"`{clip(path[-1])}` cannot stand beside {listed}"
    return Diagnostic(
        "DGC115", Severity.ERROR, message, path, labels=labels, help="keep one form", at_key=True
    )


def _help(parent: FieldPath, name: str, root: Node) -> str:
    level = at(parent)
    names = sorted(level.fields) if level else []
    if name == "from":
        return "`from:` may stand in `cluster`, in a service, in its `workload` and in a workload class"
    metric, _, percentile = name.partition("_")
    synonym = f"{_SYNONYMS.get(metric, metric)}_{percentile}"
    if metric in _SYNONYMS and synonym in names:
        return f"did you mean `{synonym}`?"
    near = misspelt(name, names) or _elsewhere(parent, name, root) or nearest(name, names)
    if near is not None:
        return f"did you mean `{near}`?"
    if parent and parent[-1] in _ENGINE_LEVELS and "settings" in names and name.lower() == name:
        return f"a `vllm serve` flag stands under `settings:`: `settings: {{{clip(name)}: ...}}`"
    return f"the fields here are {', '.join(f'`{known}`' for known in names)}"


def _elsewhere(parent: FieldPath, name: str, root: Node) -> str | None:
    """The place where this very field exists, with the user's own names filled in where the way is the same."""
    best: tuple[int, tuple[str, ...]] | None = None
    for candidate in paths(spec_shape()):
        if candidate[-1] != name or ANY in candidate[-1:]:
            continue
        shared = 0
        while shared < min(len(parent), len(candidate) - 1) and candidate[shared] in (parent[shared], ANY):
            shared += 1
        if best is None or shared > best[0]:
            best = (shared, candidate)
    if best is None or best[0] == 0:
        return None
    return path_text(_filled(best[1], parent, root))


def _filled(template: tuple[str, ...], parent: FieldPath, root: Node) -> FieldPath:
    out: list[str | int] = []
    for index, part in enumerate(template):
        if part != ANY:
            out.append(part)
        elif index < len(parent) and tuple(out) == parent[:index]:
            out.append(parent[index])
        else:
            node = descend(root, tuple(out))
            keys = list(node.entries) if isinstance(node, MappingNode) else []
            out.append(keys[0] if len(keys) == 1 else f"<{_SINGULAR.get(str(out[-1]), 'name')}>")
    return tuple(out)
