"""For GitHub Actions: one workflow command per finding, escaped so that no text can start a command of its own."""

from __future__ import annotations

from disaggc.diagnostics.model import Diagnostic, Severity
from disaggc.diagnostics.render.report import Report
from disaggc.diagnostics.render.visible import visible

_COMMAND = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def github(report: Report) -> str:
    """`::error file=...,line=...,col=...,title=...::message` lines; empty when there is nothing to say."""
    return "".join(f"{_line(d, report)}\n" for d in report.sorted())


def _line(diagnostic: Diagnostic, report: Report) -> str:
    span = diagnostic.span
    properties = {"title": f"{diagnostic.code} {report.name(diagnostic.code)}"}
    if span is not None:
        place = {"file": span.file, "line": str(span.line), "endLine": str(span.end_line)}
        if span.line == span.end_line:
            # GitHub refuses columns of a span over several lines; its end column is inclusive.
            place |= {"col": str(span.column), "endColumn": str(max(span.column, span.end_column - 1))}
        properties = place | properties
    text = "\n".join(
        [diagnostic.message, *diagnostic.notes, *([f"help: {diagnostic.help}"] if diagnostic.help else [])]
    )
    listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return f"::{_COMMAND[diagnostic.severity]} {listed}::{_message(text)}"


def _message(text: str) -> str:
    return "%0A".join(visible(line).replace("%", "%25") for line in text.split("\n"))


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
