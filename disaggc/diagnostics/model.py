"""The one shape in which any stage reports: pure data, no text layout, no files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

FieldPath = tuple[str | int, ...]
"""Where a value stands in the spec: ("services", "chat", "engine", "settings", "block-size")."""

T = TypeVar("T")


class Severity(StrEnum):
    """How bad: an error stops the compile, a warning does not, a note only tells."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A piece of a file; lines and columns count from 1, the end column is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that matters for a diagnostic, with what it has to do with it."""

    path: FieldPath
    text: str
    span: SourceSpan | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding. `path` is resolved to `span` late, by the source map, so that rules need no positions."""

    code: str
    severity: Severity
    message: str
    path: FieldPath = ()
    span: SourceSpan | None = None
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    at_key: bool = False
    """Point at the key rather than at its value (unknown or misplaced fields)."""

    def at(self, span: SourceSpan | None) -> Diagnostic:
        """The same finding, placed."""
        return replace(self, span=span)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """A value or none, and what there is to say about it. User mistakes travel here, never as exceptions."""

    value: T | None
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def failed(self) -> bool:
        """No value, or an error among the diagnostics."""
        return self.value is None or has_errors(self.diagnostics)


def error(code: str, message: str, path: FieldPath = (), *, help: str | None = None) -> Diagnostic:  # noqa: A002 - the field's name
    """Shorthand for an error at a field."""
    return Diagnostic(code, Severity.ERROR, message, path, help=help)


def warning(code: str, message: str, path: FieldPath = (), *, help: str | None = None) -> Diagnostic:  # noqa: A002 - the field's name
    """Shorthand for a warning at a field."""
    return Diagnostic(code, Severity.WARNING, message, path, help=help)


def has_errors(diagnostics: Iterable[Diagnostic]) -> bool:
    """Whether any of them stops the compile."""
    return any(d.severity is Severity.ERROR for d in diagnostics)


def path_text(path: FieldPath) -> str:
    """`services.chat.workload.rag.rate`; list positions as `[0]`."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else (f".{part}" if out else part)
    return out


def sort_key(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
    """Reading order: file, line, column, then code; findings without a place come last."""
    span = diagnostic.span
    if span is None:
        return ("\uffff", 0, 0, diagnostic.code, diagnostic.message)
    return (span.file, span.line, span.column, diagnostic.code, diagnostic.message)
