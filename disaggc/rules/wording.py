"""Lists and numbers as rules write them into sentences."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[object], *, most: int = 8) -> str:
    """`a`, `b`, `c` and 4 more."""
    items = [f"`{name}`" for name in names]
    rest = len(items) - most
    return ", ".join(items[:most]) + (f" and {rest} more" if rest > 0 else "")
