"""For programs: the document `disaggc.diagnostics/v1`, whose schema is generated from the types below."""

from __future__ import annotations

import json as text_json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from disaggc.diagnostics.model import Diagnostic, Label, SourceSpan, path_text
from disaggc.diagnostics.render.report import Report

SCHEMA = "disaggc.diagnostics/v1"
Position = int | None


class _Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LabelItem(_Item):
    """A second place that matters for a finding."""

    message: str
    """What it has to do with it."""
    field: str
    """Dotted path of the field."""
    file: str | None
    line: Position
    column: Position
    end_line: Position
    end_column: Position


class DiagnosticItem(_Item):
    """One finding. Positions count from 1, in characters; the end column is exclusive; null where there is no place."""

    code: str = Field(pattern=r"^DGC\d{3}$")
    """Stable identifier; `disaggc explain CODE` shows its page."""
    name: str
    """Kebab-case name of the code."""
    severity: Literal["error", "warning", "note"]
    """Errors stop the compile."""
    message: str
    """One sentence."""
    field: str
    """Dotted path of the field; empty when the finding is about no field."""
    file: str | None
    """As given on the command line."""
    line: Position
    column: Position
    end_line: Position
    end_column: Position
    labels: list[LabelItem]
    """Further places."""
    notes: list[str]
    """Why."""
    help: str | None
    """What to type."""


class DiagnosticsDocument(_Item):
    """Output of `disaggc validate --format json`."""

    schema_: Literal["disaggc.diagnostics/v1"] = Field(alias="schema")
    """Name and version of this format."""
    diagnostics: list[DiagnosticItem]
    """Findings, sorted by position."""


def json(report: Report) -> str:
    """The document as text, one trailing newline."""
    document = {"schema": SCHEMA, "diagnostics": items(report)}
    return text_json.dumps(document, indent=2) + "\n"


def items(report: Report) -> list[dict[str, Any]]:
    """The findings as plain data, for documents that carry them under `diagnostics`."""
    return [_item(d, report) for d in report.sorted()]


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the document."""
    schema = DiagnosticsDocument.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _item(diagnostic: Diagnostic, report: Report) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "name": report.name(diagnostic.code),
        "severity": str(diagnostic.severity),
        "message": diagnostic.message,
        "field": path_text(diagnostic.path),
        **_place(diagnostic.span),
        "labels": [_label(label) for label in diagnostic.labels],
        "notes": list(diagnostic.notes),
        "help": diagnostic.help,
    }


def _label(label: Label) -> dict[str, Any]:
    return {"message": label.text, "field": path_text(label.path), **_place(label.span)}


def _place(span: SourceSpan | None) -> dict[str, Any]:
    if span is None:
        return dict.fromkeys(("file", "line", "column", "end_line", "end_column"))
    return {
        "file": span.file,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }
