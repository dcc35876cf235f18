"""For people at a terminal: the finding, its line with a caret under the place, why, and what to type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disaggc.diagnostics.model import Diagnostic, Severity, SourceSpan
from disaggc.diagnostics.render.report import Report
from disaggc.diagnostics.render.visible import cells, visible, visible_lines, width

_COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.NOTE: "36"}
_QUIET = "34"
_WINDOW = 160
"""Columns of a source line that are shown; a 10 kB line is cut around the place."""
_LEAD = 60
_CUT = "..."


@dataclass(frozen=True, slots=True)
class _Paint:
    on: bool

    def __call__(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text


@dataclass(frozen=True, slots=True)
class _Pointer:
    """An underline: its mark, the text behind it and its colour."""

    mark: str
    text: str
    colour: str


def human(report: Report, *, color: bool = False) -> str:
    """Every finding in reading order, a blank line between, a summary at the end; empty when there are none."""
    if not report.diagnostics:
        return ""
    paint = _Paint(color)
    blocks = ["\n".join(_block(d, report, paint)) for d in report.sorted()]
    return "\n\n".join([*blocks, report.summary()]) + "\n"


def _block(diagnostic: Diagnostic, report: Report, paint: _Paint) -> Iterator[str]:
    colour = _COLOURS[diagnostic.severity]
    head = f"{diagnostic.severity}[{diagnostic.code} {report.name(diagnostic.code)}]"
    # One line whatever it quotes: a line break in a user's text must not start a line that looks like ours.
    yield paint(visible(head), f"1;{colour}") + paint(f": {visible(diagnostic.message)}", "1")
    gutter = len(str(max((s.line for s in _spans(diagnostic)), default=1)))
    margin = " " * gutter
    if diagnostic.span is not None:
        yield from _excerpt(diagnostic.span, _Pointer("^", "", colour), (report, paint, gutter))
    for label in diagnostic.labels:
        if label.span is not None:
            yield from _excerpt(label.span, _Pointer("-", label.text, _QUIET), (report, paint, gutter))
    for kind, texts in (("note", diagnostic.notes), ("help", (diagnostic.help,) if diagnostic.help else ())):
        for text in texts:
            head_line, *more = visible_lines(text)
            yield f"{margin} {paint('=', _QUIET)} {paint(kind, '1')}: {head_line}"
            yield from (f"{margin}         {line}" for line in more)


def _spans(diagnostic: Diagnostic) -> Iterator[SourceSpan]:
    if diagnostic.span is not None:
        yield diagnostic.span
    yield from (label.span for label in diagnostic.labels if label.span is not None)


def _excerpt(span: SourceSpan, pointer: _Pointer, context: tuple[Report, _Paint, int]) -> Iterator[str]:
    report, paint, gutter = context
    margin = " " * gutter
    yield f"{margin}{paint('-->', _QUIET)} {visible(span.file)}:{span.line}:{span.column}"
    line = _line(report.sources.get(span.file), span.line)
    if line is None:
        if pointer.text:
            yield f"{margin} {paint('=', _QUIET)} {visible(pointer.text)}"
        return
    text, lead, length = _windowed(cells(line), span, len(line))
    bar = paint("|", _QUIET)
    yield f"{margin} {bar}"
    yield f"{paint(f'{span.line:>{gutter}}', _QUIET)} {bar} {text}".rstrip()
    underline = pointer.mark * max(1, length) + (f" {visible(pointer.text)}" if pointer.text else "")
    yield f"{margin} {bar} {' ' * lead}{paint(underline, f'1;{pointer.colour}')}"


def _line(source: str | None, number: int) -> str | None:
    if source is None:
        return None
    lines = source.split("\n")
    return lines[number - 1].removesuffix("\r") if 1 <= number <= len(lines) else None


def _windowed(shown: list[str], span: SourceSpan, characters: int) -> tuple[str, int, int]:
    """The line's visible part, the columns before the underline and the underline's length.

    A span over several lines is underlined to the end of its first line.
    """
    start = min(span.column - 1, characters)
    end = min(span.end_column - 1, characters) if span.end_line == span.line else characters
    first = 0
    before_start = width("".join(shown[:start]))
    if before_start + width("".join(shown[start:])) > _WINDOW:
        while first < start and before_start > _LEAD:
            before_start -= width(shown[first])
            first += 1
    last = first
    room = _WINDOW
    while last < len(shown) and room >= width(shown[last]):
        room -= width(shown[last])
        last += 1
    before, after = _CUT if first else "", _CUT if last < len(shown) else ""
    lead = len(before) + width("".join(shown[first:start]))
    length = width("".join(shown[start : max(start, min(end, last))]))
    return before + "".join(shown[first:last]) + after, lead, length
