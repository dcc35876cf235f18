"""Examples with their marks: `# ^ DGC412 warning` under a line says what must be found at that column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path

from disaggc.catalog.load import load_catalog
from disaggc.diagnostics import Diagnostic
from disaggc.resolve.api import resolve
from disaggc.resolve.model import ResolvedSpec
from disaggc.rules import check
from disaggc.rules.example import EXAMPLE
from disaggc.spec.load import load, place

BASE = "spec.yaml"
OVERLAY = "change.yaml"
_MARK = re.compile(r"^#(?P<gap>\s*)\^ (?P<code>DGC\d{3})(?: (?P<severity>\w+))?$")


def marks(text: str) -> list[tuple[str, int, int, str | None]]:
    """(code, line, column, severity or None) of every mark, in order."""
    found = []
    line = 0
    for number, content in enumerate(cleandoc(text).splitlines(), 1):
        match = _MARK.match(content)
        if match is None:
            line = number
        else:
            found.append((match["code"], line, len(match["gap"]) + 2, match["severity"]))
    return found


def findings(text: str, *, sets: Sequence[str] = ()) -> tuple[tuple[Diagnostic, ...], ResolvedSpec | None]:
    """What the whole front end says about the example spec with the text laid over it, placed."""
    files = {BASE: EXAMPLE.encode(), OVERLAY: (cleandoc(text) + "\n").encode()}
    loaded = load([Path(BASE), Path(OVERLAY)], sets=sets, read=lambda path, _limit: files[path.name])
    if loaded.value is None:
        return loaded.diagnostics, None
    resolved = resolve(loaded.value, load_catalog())
    found = resolved.diagnostics
    if resolved.value is not None:
        found += check(resolved.value)
    return (*loaded.diagnostics, *place(found, loaded.value.sources)), resolved.value
