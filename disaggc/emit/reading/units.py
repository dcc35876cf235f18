"""Reads unit files by systemd's rules (systemd.syntax(7), systemd.service(5)); knows nothing of their content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_HEX = {"x": 2, "u": 4, "U": 8}
_WHITESPACE = " \t\n\r"


class UnreadableUnitError(ValueError):
    """Not a unit file that systemd would read as written; the message says where."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit file: every assignment in order, as (section, key, raw text)."""

    assignments: tuple[tuple[str, str, str], ...]

    def raw(self, section: str, key: str) -> tuple[str, ...]:
        """All raw texts of the key."""
        return tuple(text for where, name, text in self.assignments if (where, name) == (section, key))

    def lines(self, section: str, key: str) -> tuple[str, ...]:
        """All texts of the key with specifiers resolved (only `%%` is accepted)."""
        return tuple(_specifiers(text) for text in self.raw(section, key))

    def commands(self, key: str) -> tuple[tuple[str, ...], ...]:
        """The argument vectors of ExecStart= and its kin; variables must all be escaped."""
        return tuple(_command(text) for text in self.raw("Service", key))

    def environment(self) -> dict[str, str]:
        """What Environment= sets, the last one of a name winning."""
        found: dict[str, str] = {}
        for text in self.raw("Service", "Environment"):
            for word, _ in words(text):
                name, equals, value = _specifiers(word).partition("=")
                if not equals:
                    raise UnreadableUnitError(f"Environment= without `=`: {word!r}")
                found[name] = value
        return found


def read_unit(text: str) -> Unit:
    """The unit in a text; comments are `#` and `;` lines, a backslash at the end of a line joins the next."""
    section = ""
    found: list[tuple[str, str, str]] = []
    for line in _logical_lines(text):
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            if not line.endswith("]"):
                raise UnreadableUnitError(f"not a section header: {line!r}")
            section = line[1:-1]
            continue
        key, equals, value = line.partition("=")
        if not equals or not section:
            raise UnreadableUnitError(f"neither a section nor an assignment: {line!r}")
        found.append((section, key.strip(), value.strip(_WHITESPACE)))
    return Unit(tuple(found))


def _logical_lines(text: str) -> Iterator[str]:
    # systemd ends a line at \n, \r or NUL.
    carried = ""
    for line in text.replace("\r", "\n").replace("\x00", "\n").split("\n"):
        piece = line.lstrip(_WHITESPACE)
        if carried and piece[:1] in ("#", ";"):
            continue
        # An even number of backslashes at the end is escaped backslashes.
        if (len(piece) - len(piece.rstrip("\\"))) % 2:
            carried += piece[:-1] + " "
            continue
        yield (carried + piece).strip(_WHITESPACE)
        carried = ""
    if carried:
        yield carried.strip(_WHITESPACE)


def words(text: str) -> Iterator[tuple[str, bool]]:
    """The words of a line, unquoted and unescaped, each with whether it began with a quote."""
    at = 0
    while True:
        while at < len(text) and text[at] in _WHITESPACE:
            at += 1
        if at >= len(text):
            return
        quoted = text[at] in "\"'"
        word, at = _word(text, at)
        yield word, quoted


def _word(text: str, at: int) -> tuple[str, int]:
    out: list[str] = []
    quote = ""
    while at < len(text):
        char = text[at]
        if not quote and char in _WHITESPACE:
            break
        if char == "\\":
            piece, at = _escape(text, at + 1)
            out.append(piece)
            continue
        if quote and char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        else:
            out.append(char)
        at += 1
    if quote:
        raise UnreadableUnitError("a quote is left open")
    return "".join(out), at


def _escape(text: str, at: int) -> tuple[str, int]:
    char = text[at : at + 1]
    if char in _HEX:
        digits = text[at + 1 : at + 1 + _HEX[char]]
        try:
            code = int(digits, 16)
        except ValueError:
            code = 0
        if len(digits) != _HEX[char] or code == 0 or (char == "x" and code > 0x7F):
            raise UnreadableUnitError(f"bad escape \\{char}{digits}")
        return chr(code), at + 1 + _HEX[char]
    if char in _SIMPLE:
        return _SIMPLE[char], at + 1
    if char in ("\\", '"', "'"):
        return char, at + 1
    raise UnreadableUnitError(f"unknown escape \\{char}")


def _specifiers(text: str) -> str:
    out, at = [], 0
    while at < len(text):
        if text[at] == "%":
            if text[at : at + 2] != "%%":
                raise UnreadableUnitError(f"a specifier stands in {text[:60]!r}")
            at += 1
        out.append(text[at])
        at += 1
    return "".join(out)


def _variables(text: str) -> str:
    out, at = [], 0
    while at < len(text):
        if text[at] == "$":
            if text[at : at + 2] != "$$":
                raise UnreadableUnitError(f"a variable stands in {text[:60]!r}")
            at += 1
        out.append(text[at])
        at += 1
    return "".join(out)


def _command(text: str) -> tuple[str, ...]:
    out: list[str] = []
    for index, (word, quoted) in enumerate(words(text)):
        if not quoted and (word == ";" or (index == 0 and word[:1] in tuple("@-:+!|"))):
            raise UnreadableUnitError(f"a prefix or separator stands in {text[:60]!r}")
        plain = _specifiers(word)
        # The executable itself is not searched for variables.
        out.append(plain if index == 0 else _variables(plain))
    return tuple(out)
