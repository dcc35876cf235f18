"""The name that was probably meant: shared by everything that refuses a name."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The one candidate within a third of the name's length in edits, or a candidate that the name begins or ends."""
    text = _folded(name)[:80]
    scored = sorted((_edits(text, _folded(candidate)[:80]), candidate) for candidate in candidates)
    if scored and scored[0][0] <= max(1, len(text) // 3) and scored[0][0] < len(text):
        return scored[0][1]
    if len(text) >= 3:
        for _, candidate in scored:
            other = _folded(candidate)
            if other.startswith(text) or (len(other) >= 3 and text.startswith(other)):
                return candidate
    return None


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
