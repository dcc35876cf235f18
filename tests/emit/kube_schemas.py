"""Schemas of custom resources out of their definitions, made as strict as the API server is with unknown fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import yaml


def custom_resource(definition: Path, version: str) -> jsonschema.Draft202012Validator:
    """A validator for one version of a custom resource."""
    text = definition.read_text(encoding="utf-8")
    document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    found = next(v for v in document["spec"]["versions"] if v["name"] == version)
    schema = found["schema"]["openAPIV3Schema"]
    _close(schema, top=True)
    return jsonschema.Draft202012Validator(schema)


def _close(schema: Any, *, top: bool = False) -> None:
    """Refuse unknown fields wherever the definition lists them; metadata is the server's own and stays open."""
    if isinstance(schema, list):
        for item in schema:
            _close(item)
        return
    if not isinstance(schema, dict):
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
        if not open_ended:
            schema["additionalProperties"] = False
        for name, inner in properties.items():
            if not (top and name == "metadata"):
                _close(inner)
    for key in ("items", "additionalProperties"):
        _close(schema.get(key))
