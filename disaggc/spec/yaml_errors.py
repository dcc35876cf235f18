"""The C parser's terse complaints as sentences with a way out; the parser's own words are kept where none fits."""

from __future__ import annotations

import re

from yaml.error import MarkedYAMLError

from disaggc.diagnostics import Diagnostic, Severity, SourceSpan
from disaggc.spec.lines import Lines

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SENTENCES = {
    "mapping values are not allowed": (
        "a `:` stands where no key can be",
        "check the indentation, or quote a text with `: ` in it",
    ),
    "could not find expected ':'": (
        "this line has no `key: value`",
        "add `: `, or close the quote before it",
    ),
    "did not find expected key": (
        "this line does not continue the mapping above it",
        "check the indentation and the quotes",
    ),
    "did not find expected ',' or '}'": ("a `{` is not closed", "add the missing `,` or `}`"),
    "did not find expected ',' or ']'": ("a `[` is not closed", "add the missing `,` or `]`"),
    "did not find expected '-' indicator": (
        "this line does not continue the list above it",
        "check the indentation",
    ),
    "block sequence entries are not allowed": ("a list cannot begin here", "begin the list on its own line"),
    "found unexpected end of stream": ("a quote is opened and never closed", "close the quote"),
    "found unknown escape character": (
        "a backslash in double quotes begins no known escape",
        "use single quotes",
    ),
    "found undefined tag handle": ("a value that begins with `!` needs quotes", "quote it"),
    "did not find expected node content": (
        "a value is missing before this",
        "write a value or quote the text",
    ),
    "did not find expected <document start>": ("the text goes on after its end", "check the indentation"),
    "exceeded maximum nesting": ("values are nested too deep", "write them less deep"),
    "found a tab character": ("a tab stands where YAML wants spaces", "replace the tab by spaces"),
    "did not find expected alphabetic": ("a text that begins with `*` or `&` needs quotes", "quote it"),
}
"""The parser's words -> a sentence and what to do."""
_UNCLOSED = ("found unexpected end of stream", "expected ',' or '}'", "expected ',' or ']'")
"""Mistakes that lie where the quote or bracket was opened, not where the parser noticed."""


def control_character(lines: Lines) -> Diagnostic | None:
    """The first character that no YAML file may hold, e.g. an escape sequence pasted from a terminal."""
    match = _CONTROL.search(lines.text)
    if match is None:
        return None
    span = lines.span(match.start(), match.end())
    return Diagnostic(
        "DGC102", Severity.ERROR, f"control character U+{ord(match[0]):04X} in the text", span=span
    )


def syntax_error(problem: MarkedYAMLError, lines: Lines) -> Diagnostic:
    """Where the parser stopped, in words of the file's author."""
    mark = problem.problem_mark or problem.context_mark
    words = problem.problem or "the text is not YAML"
    if problem.context_mark is not None and any(sign in words for sign in _UNCLOSED):
        mark = problem.context_mark
    offset = min(mark.index, len(lines.text)) if mark is not None else 0
    tab = _tab(lines, offset)
    if tab is not None:
        help_text = "replace the tab by spaces"
        return Diagnostic(
            "DGC102", Severity.ERROR, "a tab indents this line, YAML wants spaces", span=tab, help=help_text
        )
    offset = min(offset, len(lines.text.rstrip()))
    span = lines.span(offset, min(offset + 1, len(lines.text)))
    span = SourceSpan(span.file, span.line, span.column, span.line, max(span.column, span.end_column))
    if "cannot start any token" in words and offset < len(lines.text):
        character = lines.text[offset]
        message = (
            f"`{character}` cannot begin a value" if character != "`" else "a backtick cannot begin a value"
        )
        return Diagnostic("DGC102", Severity.ERROR, message, span=span, help="quote the text")
    if offset >= len(lines.text.rstrip()) and "expected node content" in words:
        message, help_text = (
            "the text ends where a value is wanted",
            "close what `[` or `{` opened, or write the value",
        )
        return Diagnostic("DGC102", Severity.ERROR, message, span=span, help=help_text)
    for known, (message, help_text) in _SENTENCES.items():
        if known in words:
            notes = () if any(sign in words for sign in _UNCLOSED) else _context(problem, lines)
            return Diagnostic("DGC102", Severity.ERROR, message, span=span, notes=notes, help=help_text)
    return Diagnostic("DGC102", Severity.ERROR, f"not well-formed YAML: {words}", span=span)


def _context(problem: MarkedYAMLError, lines: Lines) -> tuple[str, ...]:
    if problem.context is None or problem.context_mark is None:
        return ()
    line, column = lines.place(min(problem.context_mark.index, len(lines.text)))
    return (f"{problem.context} that begins at {line}:{column}",)


def _tab(lines: Lines, offset: int) -> SourceSpan | None:
    """The tab in the indentation of the line of the error or of the one before it (the parser may stop a line late)."""
    if lines.text[offset : offset + 1] == "\t":
        return lines.span(offset, offset + 1)
    line, _ = lines.place(offset)
    for candidate in (line, line - 1):
        if candidate < 1:
            continue
        text = lines.line_text(candidate)
        indent = text[: len(text) - len(text.lstrip(" \t"))]
        if "\t" in indent and text.strip():
            column = indent.index("\t") + 1
            return SourceSpan(lines.file, candidate, column, candidate, column + 1)
    return None
