"""What every JSON output shares: frozen, no unknown keys, a schema name, one spelling, a JSON Schema."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Item(BaseModel):
    """A part of an output."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True
    )


class Document(Item):
    """A whole output; subclasses name their format in `schema_`."""

    def text(self) -> str:
        """JSON for stdout, keys in the order of the type, one newline at the end."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema (2020-12) of the output."""
        schema = cls.model_json_schema(by_alias=True, mode="serialization")
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
