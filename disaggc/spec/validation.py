"""A tree against the typed model: one clear diagnostic for each thing that is wrong, at its own place.

Every pydantic error type is put into words here; its own wording reaches the user only for types unknown here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from disaggc.diagnostics import Diagnostic, FieldPath, Severity, error, path_text
from disaggc.spec.model import Spec
from disaggc.spec.names import GRAMMARS
from disaggc.spec.near import nearest
from disaggc.spec.shape import at
from disaggc.spec.tree import Node, ScalarNode, child, plain
from disaggc.spec.unknown import unknown_field
from disaggc.spec.wording import clip, described, either, size_of, text_of, type_help

_WANTED = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "`true` or `false`",
}
EXPLAINED = 500
"""So many findings are put into words; no more than a hundred are shown."""
_MAPPINGS = ("model_type", "model_attributes_type", "dict_type")
_BOUNDS = {
    "greater_than": ("gt", "more than {}"),
    "greater_than_equal": ("ge", "at least {}"),
    "less_than": ("lt", "less than {}"),
    "less_than_equal": ("le", "at most {}"),
}


@dataclass(frozen=True, slots=True)
class _Problem:
    """One pydantic error, located in the tree."""

    kind: str
    path: FieldPath
    at_key: bool
    node: Node | None
    context: dict[str, Any]
    message: str

    @property
    def field(self) -> str:
        """The field's name as a reader finds it: list positions with their list."""
        names = [index for index, part in enumerate(self.path) if isinstance(part, str)]
        return path_text(self.path[names[-1] :]) if names else path_text(self.path)


def validate(root: Node) -> Spec | list[Diagnostic]:
    """The typed spec, or every error of its shape (not yet placed)."""
    try:
        return Spec.model_validate(plain(root))
    except ValidationError as problem:
        items = problem.errors(include_url=False)
        found = [_diagnostic(_located(root, item), root) for item in items[:EXPLAINED]]
        rest = [_bare(_located(root, item)) for item in items[EXPLAINED:]]
        return [*_without_echoes(found), *rest]


def _bare(problem: _Problem) -> Diagnostic:
    """A finding beyond those that are shown: counted, not explained, since near-misses take time."""
    return error(
        "DGC110" if problem.kind == "extra_forbidden" else "DGC112",
        f"`{problem.field}` is wrong",
        problem.path,
    )


def _without_echoes(found: list[Diagnostic]) -> list[Diagnostic]:
    """A misspelt required field is one mistake: its absence under the right name is not reported as well."""
    meant = {(d.path[:-1], d.help) for d in found if d.code == "DGC110"}
    missing = {
        id(d): (d.path, f"did you mean `{(d.help or '').split('`')[1].rstrip(':')}`?")
        for d in found
        if d.code == "DGC111"
    }
    return [d for d in found if d.code != "DGC111" or missing[id(d)] not in meant]


def _located(root: Node, item: Any) -> _Problem:
    """Follows the error's location through the tree; names of union branches (`<...>`) stand in no tree."""
    node: Node | None = root
    path: list[str | int] = []
    at_key = False
    location = item["loc"]
    for position, part in enumerate(location):
        below = child(node, part) if node is not None else None
        if below is not None:
            path.append(part)
            node = below
        elif part == "[key]":
            at_key = True
        elif item["type"] == "missing" and position == len(location) - 1:
            path.append(part)
            node = None
    return _Problem(item["type"], tuple(path), at_key, node, item.get("ctx", {}), item["msg"])


def _diagnostic(problem: _Problem, root: Node) -> Diagnostic:
    kind = problem.kind
    match kind:
        case "extra_forbidden":
            return unknown_field(problem.path, root)
        case "missing":
            return _missing(problem)
        case "quantity":
            return _quantity(problem)
        case "invalid_key" | "setting":
            return _wrong_type(problem)
    if kind in _BOUNDS:
        return _out_of_bounds(problem)
    return _wrong_type(problem) if kind in _WANTED else _bad_value(problem)


def _missing(problem: _Problem) -> Diagnostic:
    parent, name = problem.path[:-1], problem.path[-1]
    level = at(parent)
    doc = level.doc(str(name)) if level else ""
    about = f": {doc[0].lower()}{doc[1:].rstrip('.')}" if doc else ""
    where = f"`{path_text(parent)}`" if parent else "the document"
    return Diagnostic(
        "DGC111",
        Severity.ERROR,
        f"{where} has no `{name}`",
        parent,
        help=f"add `{name}:`{about}",
        at_key=True,
    )


def _wrong_type(problem: _Problem) -> Diagnostic:
    if problem.at_key or problem.kind == "invalid_key":
        return _wrong_key(problem)
    node, level = problem.node, at(problem.path)
    wanted = _WANTED.get(problem.kind, "a value that nests less deep and has only texts as keys")
    if level is not None and level.fields and problem.kind not in _MAPPINGS:
        wanted += f" or a mapping with {either(list(level.fields))}"
    return Diagnostic(
        "DGC112",
        Severity.ERROR,
        f"`{problem.field}` is {described(node)}, {wanted} is wanted",
        problem.path,
        help=type_help(problem.kind, node, str(problem.path[-1]) if problem.path else ""),
        at_key=not isinstance(node, ScalarNode) or node.value is None,
    )


def _wrong_key(problem: _Problem) -> Diagnostic:
    key = problem.path[-1] if problem.path else ""
    message, help_text = f"the key `{clip(key)}` is a number, a text is wanted", f'write `"{clip(key)}"`'
    if isinstance(key, str):
        return Diagnostic(
            "DGC112",
            Severity.ERROR,
            f"the key `{clip(key)}` is a text, a whole number is wanted",
            problem.path,
            at_key=True,
        )
    return Diagnostic("DGC112", Severity.ERROR, message, problem.path, help=help_text, at_key=True)


def _quantity(problem: _Problem) -> Diagnostic:
    sentence, hint = problem.context["sentence"], problem.context["hint"] or None
    node = problem.node
    if isinstance(node, ScalarNode) and node.value is not None and not isinstance(node.value, bool):
        return error("DGC113", f"`{problem.field}`: {sentence}", problem.path, help=hint)
    message = f"`{problem.field}` is {described(node)}, {sentence}"
    return Diagnostic(
        "DGC113", Severity.ERROR, message, problem.path, at_key=not isinstance(node, ScalarNode)
    )


def _out_of_bounds(problem: _Problem) -> Diagnostic:
    name, phrase = _BOUNDS[problem.kind]
    limit = problem.context[name]
    bound = f"{limit:,}" if isinstance(limit, int) and limit < 10_000_000 else f"{limit:g}"
    is_text = isinstance(problem.node, ScalarNode) and isinstance(problem.node.value, str)
    code = "DGC113" if is_text and not problem.at_key else "DGC114"
    given = clip(problem.path[-1]) if problem.at_key else clip(text_of(problem.node))
    message = f"`{problem.field}` is {given}, {phrase.format(bound)} is wanted"
    return Diagnostic(code, Severity.ERROR, message, problem.path, at_key=problem.at_key)


def _bad_value(problem: _Problem) -> Diagnostic:
    given = clip(problem.path[-1]) if problem.at_key and problem.path else clip(text_of(problem.node))
    subject = f"the name `{given}`" if problem.at_key else f"`{problem.field}`"
    message, help_text = f"{subject}: {problem.message[:1].lower()}{problem.message[1:]}", None
    match problem.kind:
        case "literal_error":
            choices = re.findall(r"'([^']*)'", problem.context["expected"]) or [problem.context["expected"]]
            near = nearest(given, choices)
            message = (
                f"{subject} is `{given}`, {either(choices)} is wanted"
                if not problem.at_key
                else (f"{subject} is unknown, {either(choices)} is wanted")
            )
            help_text = f"did you mean `{near}`?" if near else None
        case "string_pattern_mismatch":
            pattern = problem.context["pattern"]
            message = f"{subject} is malformed" if problem.at_key else f"{subject} is malformed: `{given}`"
            help_text = GRAMMARS.get(pattern, f"it must match `{pattern}`")
        case "string_too_short" | "too_short":
            message, help_text = (
                f"{subject} is empty",
                "give at least one entry" if problem.kind == "too_short" else None,
            )
        case "too_long":
            length, limit = size_of(problem.node), problem.context["max_length"]
            message = f"{subject} has {length:,} entries, at most {limit:,} are allowed"
        case "string_too_long":
            length, limit = len(text_of(problem.node)), problem.context["max_length"]
            message = f"{subject} has {length:,} characters, at most {limit:,} are allowed"
        case "api_key":
            message, help_text = (
                f"{subject} says no place of the key",
                f"write {problem.message.removesuffix(' is wanted')}",
            )
        case _:
            pass
    at_key = problem.at_key or not isinstance(problem.node, ScalarNode)
    return Diagnostic("DGC114", Severity.ERROR, message, problem.path, help=help_text, at_key=at_key)
