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
    text, found = _folded(name)[:80], None
    # What is no nearer than the nearest so far is not counted out: an engine has hundreds of names.
    below = min(max(1, len(text) // 3) + 1, len(text))
    for candidate in sorted(candidates):
        edits = _edits(text, _folded(candidate)[:80], below)
        if edits < below:
            below, found = edits, candidate
    return found


def _folded(name: str) -> str:
    return name.lower().replace("-", "_").lstrip("_")


def _edits(left: str, right: str, below: int) -> int:
    """Optimal string alignment distance: insertions, deletions, replacements and swapped neighbours.

    `below` where it is that or more.
    """
    if abs(len(left) - len(right)) >= below:
        return below
    before: list[int] = []
    above = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        row = [i]
        for j, b in enumerate(right, 1):
            # compared one by one: min() of three took most of the time
            cost = above[j - 1] if a == b else above[j - 1] + 1
            if above[j] < cost:
                cost = above[j] + 1
            if row[-1] < cost:
                cost = row[-1] + 1
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b and before[j - 2] < cost:
                cost = before[j - 2] + 1
            row.append(cost)
        if min(row) >= below and min(above) >= below:
            return below
        before, above = above, row
    return min(above[-1], below)
