"""For code-scanning services: SARIF 2.1.0, one run, columns in Unicode code points."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from disaggc.diagnostics.model import Diagnostic, Severity, SourceSpan, path_text
from disaggc.diagnostics.render.report import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}


def sarif(report: Report) -> str:
    """The log as text, one trailing newline."""
    found = report.sorted()
    codes = sorted({d.code for d in found})
    index = {code: position for position, code in enumerate(codes)}
    driver = {
        "name": "disaggc",
        "semanticVersion": report.version,
        "rules": [
            {"id": code, "name": report.name(code), "shortDescription": {"text": _title(report, code)}}
            for code in codes
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, index[d.code]) for d in found],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _title(report: Report, code: str) -> str:
    return report.name(code).replace("-", " ")


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    sentences = [
        diagnostic.message,
        *diagnostic.notes,
        *([f"help: {diagnostic.help}"] if diagnostic.help else []),
    ]
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": _LEVEL[diagnostic.severity],
        "message": {"text": "\n".join(sentences)},
    }
    if diagnostic.span is not None:
        logical = [{"fullyQualifiedName": path_text(diagnostic.path)}] if diagnostic.path else None
        place: dict[str, Any] = {"physicalLocation": _physical(diagnostic.span)}
        result["locations"] = [place | ({"logicalLocations": logical} if logical else {})]
    related = [
        {"id": number, "message": {"text": label.text}, "physicalLocation": _physical(label.span)}
        for number, label in enumerate(diagnostic.labels)
        if label.span is not None
    ]
    return result | ({"relatedLocations": related} if related else {})


def _physical(span: SourceSpan) -> dict[str, Any]:
    return {
        "artifactLocation": {"uri": quote(span.file, safe="/", errors="replace")},
        "region": {
            "startLine": span.line,
            "startColumn": span.column,
            "endLine": span.end_line,
            "endColumn": span.end_column,
        },
    }
