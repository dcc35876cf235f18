"""The name that was probably meant: shared by everything that refuses a name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was misspelt, else one that the name begins or that begins it."""
    known = sorted(candidates)
    found = misspelt(name, known)
    text = _folded(name)
    if found is not None or len(text) < 3:
        return found
    return next(
        (c for c in known if _folded(c).startswith(text) or (len(c) >= 3 and text.startswith(_folded(c)))),
        None,
    )


def misspelt(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate within a third of the name's length in edits, the nearest first."""
    text = _folded(name)[:80]
    edits, found = min(((_edits(text, _folded(c)[:80]), c) for c in candidates), default=(len(text), ""))
    return found if edits <= max(1, len(text) // 3) and edits < len(text) else None


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").lstrip("_")


def _edits(left: str, right: str) -> int:
    """Optimal string alignment distance: insertions, deletions, replacements and swapped neighbours."""
    if abs(len(left) - len(right)) > max(len(left), 3):
        return max(len(left), len(right))
    before: list[int] = []
    above = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        row = [i]
        for j, b in enumerate(right, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, above = above, row
    return above[-1]
