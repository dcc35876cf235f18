"""`disaggc.schemas/v1`: what `disaggc schema --format json` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document


class SchemasDocument(Document):
    """Output of `disaggc schema --format json`."""

    schema_: Annotated[Literal["disaggc.schemas/v1"], Field(alias="schema")] = "disaggc.schemas/v1"
    """Name and version of this format."""
    schemas: tuple[str, ...]
    """Names that `disaggc schema NAME` prints."""
