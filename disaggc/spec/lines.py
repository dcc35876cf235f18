"""Character offsets to lines and columns, as editors count them: from 1, by characters, at LF, CR LF and CR."""

from __future__ import annotations

import re
from bisect import bisect_right

from disaggc.diagnostics import SourceSpan

_BREAK = re.compile(r"\r\n|\n|\r")


class Lines:
    """The line starts of one text."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self._starts = [0, *(match.end() for match in _BREAK.finditer(text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of a character offset; between CR and LF it is still the CR's."""
        if self.text[offset - 1 : offset + 1] == "\r\n":
            offset -= 1
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def span(self, start: int, end: int) -> SourceSpan:
        """The span of characters start to end (exclusive)."""
        line, column = self.place(start)
        end_line, end_column = self.place(max(start, end))
        return SourceSpan(self.file, line, column, end_line, end_column)

    def line_text(self, line: int) -> str:
        """One line without its end."""
        start = self._starts[line - 1]
        match = _BREAK.search(self.text, start)
        return self.text[start : match.start() if match else len(self.text)]

    @property
    def count(self) -> int:
        """How many lines there are; text after the last break counts, even when empty."""
        return len(self._starts)
