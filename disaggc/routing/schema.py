"""JSON Schema of the routing file, for editors and for whoever writes one by hand."""

from __future__ import annotations

from typing import Any

from disaggc.routing.table import RoutingTable


def table_schema() -> dict[str, Any]:
    """Every field with its default and bounds."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:disaggc:schema:routing:v1",
        **RoutingTable.model_json_schema(),
    }
