"""What every JSON output shares: frozen, no unknown keys, a schema name, one spelling, a JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict


class Item(BaseModel):
    """A part of an output."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,
        populate_by_name=True,
        json_schema_serialization_defaults_required=True,
    )


class Document(Item):
    """A whole output; subclasses name their format in `schema_`."""

    def text(self) -> str:
        """JSON for stdout, keys in the order of the type, one newline at the end."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema (2020-12) of the output, with the docstring under each field as its description."""
        schema = cls.model_json_schema(by_alias=True, mode="serialization")
        parts = {model.__name__: model for model in _models(cls)}
        for name, part in ((cls.__name__, schema), *schema.get("$defs", {}).items()):
            if name in parts:
                _describe(part, parts[name])
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and every model its fields hold."""
    seen: set[type[BaseModel]] = set()
    waiting: list[Any] = [model]
    while waiting:
        found = waiting.pop()
        waiting.extend(getattr(found, "__args__", ()))
        if isinstance(found, type) and issubclass(found, BaseModel) and found not in seen:
            seen.add(found)
            waiting.extend(field.annotation for field in found.model_fields.values())
            yield found


def _describe(part: dict[str, Any], model: type[BaseModel]) -> None:
    from disaggc.spec.field_docs import field_docs

    docs: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base.__module__.startswith("disaggc."):
            docs |= field_docs(base)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if name in docs and key in part["properties"]:
            part["properties"][key]["description"] = docs[name]
