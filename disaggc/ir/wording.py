"""Errors of pydantic in plain words, for files and bodies that machines write. The spec has words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_WANTED = {
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "string_type": "a text",
    "string_unicode": "a text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "none_required": "null",
}
_LIMITS = {
    "greater_than": "more than {gt} is wanted",
    "greater_than_equal": "at least {ge} is wanted",
    "less_than": "less than {lt} is wanted",
    "less_than_equal": "at most {le} is wanted",
    "too_short": "{actual_length} entries, at least {min_length} wanted",
    "too_long": "{actual_length} entries, at most {max_length} allowed",
    "string_too_short": "too short, at least {min_length} characters are wanted",
    "string_too_long": "too long, at most {max_length} characters are allowed",
    "string_pattern_mismatch": "malformed, it must match {pattern}",
    "literal_error": "{expected} is wanted",
    "enum": "{expected} is wanted",
    "missing": "missing",
    "extra_forbidden": "no such field is known",
    "json_invalid": "not JSON: {error}",
    "union_tag_invalid": "{expected_tags} is wanted",
}


def faults(problem: ValidationError, whole: str, *, under: str = "") -> list[str]:
    """One line for each fault: the field, or the name of the whole where no field is at fault, and what is wrong.

    under: what stands before the fields where they are a part of something, e.g. `plan.`.
    """
    found = problem.errors(include_url=False, include_input=False)
    return [
        f"`{under + '.'.join(map(str, one['loc'])) if one['loc'] else whole}`: {_words(one)}" for one in found
    ]


def _words(one: Mapping[str, Any]) -> str:
    kind, context = one["type"], one.get("ctx", {})
    if kind in _WANTED:
        return f"{_WANTED[kind]} is wanted"
    if kind in _LIMITS:
        return _LIMITS[kind].format_map(context)
    # Our own checks speak for themselves; a kind that is unknown here keeps pydantic's words.
    return str(context.get("error") or one["msg"])
