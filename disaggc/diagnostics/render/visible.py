"""Foreign text made harmless: what a terminal or a log would act on is shown as its code point instead."""

from __future__ import annotations

import unicodedata

_ACTED_UPON = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Control, format (bidirectional, zero-width), surrogate, private, unassigned, line and paragraph separators."""
TAB_STOP = 4


def visible(text: str) -> str:
    """The text on one line, with every character a terminal acts upon written as `<U+202E>`."""
    return text if text.isascii() and text.isprintable() else "".join(_shown(char) for char in text)


def visible_lines(text: str) -> tuple[str, ...]:
    """The same, keeping deliberate line breaks apart."""
    return tuple(visible(line) for line in text.split("\n"))


def cells(line: str) -> list[str]:
    """One display string per source character, so that columns can be counted: tabs become spaces to the next stop."""
    shown: list[str] = []
    column = 0
    for char in line:
        text = " " * (TAB_STOP - column % TAB_STOP) if char == "\t" else _shown(char)
        shown.append(text)
        column += width(text)
    return shown


def width(text: str) -> int:
    """Terminal columns: wide and full-width characters take two, combining marks none."""
    return len(text) if text.isascii() else sum(_width(char) for char in text)


def _shown(char: str) -> str:
    return f"<U+{ord(char):04X}>" if unicodedata.category(char) in _ACTED_UPON else char


def _width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1
