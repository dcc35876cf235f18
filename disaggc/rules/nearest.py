"""The name a user probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The closest of the names, or None when none is close."""
    found = get_close_matches(name, sorted(names), n=1, cutoff=0.72)
    return found[0] if found else None


def listed(names: Iterable[object], *, most: int = 8) -> str:
    """`a`, `b`, `c` and 4 more."""
    items = [f"`{name}`" for name in names]
    rest = len(items) - most
    return ", ".join(items[:most]) + (f" and {rest} more" if rest > 0 else "")
