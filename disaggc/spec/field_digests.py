"""Every value of a spec by its dotted path, as a digest: two specs are compared without keeping what they hold."""

from __future__ import annotations

from disaggc.diagnostics import FieldPath, path_text
from disaggc.ir.canonical import canonical_json, digest
from disaggc.spec.model import Spec


def field_digests(spec: Spec) -> dict[str, str]:
    """Dotted path -> 16 hex digits; an empty map or list is a value of its own."""
    found: dict[str, str] = {}
    waiting: list[tuple[FieldPath, object]] = [((), spec.model_dump(mode="json"))]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict) and value:
            waiting.extend(((*path, key), item) for key, item in value.items())
        else:
            found[path_text(path)] = digest(canonical_json(value)).removeprefix("sha256:")[:16]
    return found
