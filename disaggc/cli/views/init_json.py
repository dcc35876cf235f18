"""`disaggc.init/v1`: what `disaggc init --format json` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document


class InitDocument(Document):
    """Output of `disaggc init --format json`."""

    schema_: Annotated[Literal["disaggc.init/v1"], Field(alias="schema")] = "disaggc.init/v1"
    """Name and version of this format."""
    written: tuple[str, ...]
    """Files that were written."""
