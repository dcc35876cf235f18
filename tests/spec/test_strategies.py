from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from jsonschema import Draft202012Validator

from disaggc.catalog.load import load_catalog
from disaggc.diagnostics import Severity
from disaggc.resolve.api import resolve
from disaggc.rules.checking import check
from disaggc.spec.json_schema import spec_schema
from disaggc.spec.load import load
from disaggc.spec.shape import ANY, Shape, paths, spec_shape
from tests.effort import examples
from tests.spec.strategies import SPEC_NAME, reader_of, spec_texts, specs

_CATALOG = load_catalog()
_VALIDATOR = Draft202012Validator(spec_schema())
_ENOUGH = 200


def drawn_fields(spec: dict[str, Any]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()

    def visit(value: object, level: Shape, path: tuple[str, ...]) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                known = isinstance(key, str) and key in level.fields
                below = level.below(key)
                if known:
                    found.add((*path, key))
                if below is not None:
                    visit(inner, below, (*path, key if known else ANY))
        elif isinstance(value, list) and (below := level.below(0)) is not None:
            for inner in value:
                visit(inner, below, (*path, ANY))

    visit(spec, spec_shape(), ())
    return found


def test_every_field_of_the_language_is_drawn() -> None:
    seen: set[tuple[str, ...]] = set()

    @settings(max_examples=_ENOUGH, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(specs())
    def draw(spec: dict[str, Any]) -> None:
        seen.update(drawn_fields(spec))

    draw()
    missing = [".".join(path) for path in paths(spec_shape()) if path not in seen]
    assert missing == []


@settings(max_examples=examples(50), phases=[Phase.explicit, Phase.generate])
@given(specs())
def test_an_editor_marks_nothing_in_a_drawn_spec(spec: dict[str, Any]) -> None:
    errors = [error.message for error in _VALIDATOR.iter_errors(json.loads(json.dumps(spec)))]
    assert errors == []


# Shrinking a spec takes minutes and tells no more than the text.
@settings(max_examples=examples(60), phases=[Phase.explicit, Phase.generate])
@given(spec_texts())
def test_every_drawn_spec_holds(text: str) -> None:
    read = reader_of(text)
    loaded = load([Path(SPEC_NAME)], read=read)
    assert loaded.value is not None, (loaded.diagnostics, text)
    resolved = resolve(loaded.value, _CATALOG, read=read)
    assert resolved.value is not None, (resolved.diagnostics, text)
    found = (*loaded.diagnostics, *resolved.diagnostics, *check(resolved.value))
    errors = [(d.code, d.message, d.path) for d in found if d.severity is Severity.ERROR]
    assert errors == [], text
