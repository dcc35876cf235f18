"""The catalog's own data files, read one section at a time so that a compile pays only for what its spec names.

Knows TOML section headers at the start of a line and nothing of what stands in a section.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
"""The files' folder; plain paths, because importlib.resources costs 20 ms at every start."""
_HEADER = re.compile(r'^\[(?:"([^"\n]+)"|([A-Za-z0-9_.\-]+))\][ \t]*$', re.MULTILINE)


class Table:
    """One file of named sections. `get` parses a section when it is first asked for."""

    def __init__(self, name: str) -> None:
        self._text = data_text(name)
        matches = tuple(_HEADER.finditer(self._text))
        ends = [m.start() for m in matches[1:]] + [len(self._text)]
        self._spans = {m[1] or m[2]: (m.end(), end) for m, end in zip(matches, ends, strict=True)}

    @property
    def names(self) -> tuple[str, ...]:
        """Section names in file order, without `aliases`."""
        return tuple(name for name in self._spans if name != "aliases")

    def get(self, name: str) -> Mapping[str, Any] | None:
        """The section's keys, or None where the file has no such section."""
        span = self._spans.get(name)
        return None if span is None else tomllib.loads(self._text[span[0] : span[1]])

    def aliases(self) -> Mapping[str, str]:
        """Other names -> section name."""
        return self.get("aliases") or {}


def data_text(name: str) -> str:
    """A shipped data file as text."""
    return (DATA / name).read_text(encoding="utf-8")
