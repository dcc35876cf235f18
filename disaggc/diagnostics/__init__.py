"""What every stage says about the user's input: a code, a place, a sentence and a way out."""

from disaggc.diagnostics.codes import CODES, Code, code_named
from disaggc.diagnostics.model import (
    Diagnostic,
    FieldPath,
    Label,
    Outcome,
    Severity,
    SourceSpan,
    error,
    has_errors,
    path_text,
    sort_key,
    warning,
)

__all__ = [
    "CODES",
    "Code",
    "Diagnostic",
    "FieldPath",
    "Label",
    "Outcome",
    "Severity",
    "SourceSpan",
    "code_named",
    "error",
    "has_errors",
    "path_text",
    "sort_key",
    "warning",
]
