"""Errors of reading: they know their place at once, unlike those that name a field."""

from __future__ import annotations

from disaggc.diagnostics import Diagnostic, Severity, SourceSpan


def finding(code: str, message: str, span: SourceSpan, *, help: str | None = None) -> Diagnostic:  # noqa: A002 - the field's name
    """An error at a place in a file."""
    return Diagnostic(code, Severity.ERROR, message, span=span, help=help)
