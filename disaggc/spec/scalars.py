"""What an unquoted YAML text means: YAML 1.2 for true, false and numbers; everything else stays text.

YAML 1.1 would turn `no`, `22:30`, `2024-01-01` and `1_000` into something else; here they stay as written. Texts that
common tools read as different numbers are refused.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_INTEGER = re.compile(r"[-+]?[0-9]+")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_OTHER_BASE = re.compile(r"[-+]?(0[0-9_]+|0o[0-7]+|0b[01_]+)")
_LONGEST_INTEGER = 18
_WORDS = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
OLD_BOOLEANS = {
    word: meaning
    for meaning, words in ((True, ("yes", "on", "y")), (False, ("no", "off", "n")))
    for lower in words
    for word in (lower, lower.capitalize(), lower.upper())
}
"""Words that YAML 1.1 reads as booleans and that are text here."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """The text means different numbers to different readers; `reading` says which."""

    reading: str


def read_plain(text: str) -> str | int | float | bool | Ambiguous | None:
    """The value of an unquoted text."""
    if text in _WORDS:
        return _WORDS[text]
    return read_number(text) if text[0] in "+-.0123456789" else text


def read_number(text: str) -> str | int | float | Ambiguous:
    """The number, or the text where it is none that fits a machine."""
    if _OTHER_BASE.fullmatch(text):
        return Ambiguous(
            "some readers take it for an octal or binary number, others for a decimal one or a text"
        )
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= _LONGEST_INTEGER else text
    if _HEX.fullmatch(text):
        return int(text, 16)
    if len(text) <= 64 and _FLOAT.fullmatch(text):
        number = float(text)
        return number if math.isfinite(number) else text
    return text
