"""The JSON Schema of the spec, for editors and other tools: generated from the typed model, never written by hand.

`python -m disaggc.spec.json_schema` rewrites schemas/spec.v1.json. A schema checks shapes; what needs two fields or the
catalog is checked by disaggc alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from disaggc.resources import shipped
from disaggc.spec import model as spec_model
from disaggc.spec.field_docs import field_docs
from disaggc.spec.model import Spec
from disaggc.spec.names import GRAMMARS, Part

FILE = "spec.v1.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FROM = {
    "type": "string",
    "minLength": 1,
    "description": "Read this part from another file; fields beside `from` are laid over it. "
    "The path is relative to the file that says it.",
    "examples": ["cluster.yaml"],
}
_WITH_FROM = ("Cluster", "Service", "WorkloadClass")
_TOKEN_COUNT = r"^[1-9][0-9]*$"  # noqa: S105 - tokens of text


def spec_schema() -> dict[str, Any]:
    """The schema, with a description for every field."""
    schema = Spec.model_json_schema()
    definitions: dict[str, Any] = schema.pop("$defs")
    for name, definition in definitions.items():
        _describe(definition, getattr(spec_model, name))
    _describe(schema, Spec)
    for part in (schema, *definitions.values()):
        _tidy(part)
    for name in _WITH_FROM:
        _allow_from(definitions[name])
    workload = definitions["Service"]["properties"]["workload"]
    [(pattern, classes)] = workload["patternProperties"].items()
    workload["patternProperties"] = {f"^(?!from$){pattern.removeprefix('^')}": classes}
    workload["properties"] = {
        "from": {"description": _FROM["description"], "anyOf": [_FROM, {"$ref": "#/$defs/WorkloadClass"}]}
    }
    definitions["LengthHistogram"]["properties"]["histogram"]["propertyNames"] = {"pattern": _TOKEN_COUNT}
    head = {
        "$schema": _DIALECT,
        "$id": "urn:disaggc:schema:spec:v1",
        "title": "disaggc spec",
        "description": "A GPU cluster and the traffic it must serve, compiled by disaggc into a deployment.",
    }
    return {
        **head,
        **{key: value for key, value in schema.items() if key != "description"},
        "$defs": definitions,
    }


def _describe(definition: dict[str, Any], part: type[Part]) -> None:
    docs = field_docs(part)
    for name, field in definition["properties"].items():
        general = field.get("description")
        field["description"] = f"{docs[name]} {general}" if general else docs[name]


def _tidy(node: dict[str, Any]) -> None:
    """Closed maps, grammars in words, no titles that only repeat a name."""
    for inner in _schemas(node):
        inner.pop("title", None)
        if "patternProperties" in inner:
            inner["additionalProperties"] = False
        pattern = inner.get("pattern")
        if pattern in GRAMMARS and "description" not in inner:
            inner["description"] = f"{GRAMMARS[pattern][:1].upper()}{GRAMMARS[pattern][1:]}."


def _schemas(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside it."""
    yield node
    for key, value in node.items():
        if key in ("properties", "patternProperties"):
            for inner in value.values():
                yield from _schemas(inner)
        elif key in ("anyOf", "oneOf"):
            for inner in value:
                yield from _schemas(inner)
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            yield from _schemas(value)


def _allow_from(definition: dict[str, Any]) -> None:
    """With `from`, required fields may stand in the other file."""
    definition["properties"] = {"from": _FROM, **definition["properties"]}
    definition["if"] = {"required": ["from"]}
    definition["then"] = True
    definition["else"] = {"required": definition.pop("required")}


def schema_text() -> str:
    """The file's text."""
    return json.dumps(spec_schema(), indent=2, ensure_ascii=True) + "\n"


def write_schema() -> Path:
    """Rewrite the shipped file."""
    path = shipped("schemas") / FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(schema_text(), encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{write_schema()}\n")
