"""Two scoreboards -> the figures in which the second falls behind the first. Computes no figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
_ERRORS = ("mape", "median", "p90", "regret")
_SHARES = ("right", "agree", "agree_there", "within_2x", "in_range")
_COUNTS = ("rows", "cells", "recipes", "controls", "gated", "orderings", "worker_kinds")
_RIVALS = ("naive", "always")
"""Figures of what predictions are compared with; they may be as bad as they are."""
_SLACK, _POINT = 0.1, 0.005


def worse(now: Document, committed: Document) -> list[str]:
    """Figures that got worse than committed by more than a tenth and half a point, and those that are gone.

    What was not asked for (columns that need a fit, lines) counts as gone only where some of it is there; of another
    table only the figures that both have are compared.
    """
    same = now["data"] == committed["data"]
    found = []
    for name, was, seen in _pairs(now, committed):
        if seen is None:
            found += [f"{name}: gone"] if same else []
            continue
        for key, value in was.items():
            if key not in seen:
                found += [f"{name}: {key} is gone"] if same else []
            elif _fell(key, value, seen[key], same_rows=same):
                found.append(f"{name}: {key} {value:.3g} -> {seen[key]:.3g}")
    return found


def _pairs(now: Document, committed: Document) -> Iterator[tuple[str, Mapping[str, float], Document | None]]:
    """(name, committed figures, present ones) of everything that was asked for."""
    asked = {
        column for quantities in now["sources"].values() for each in quantities.values() for column in each
    }
    for source, quantities in committed["sources"].items():
        for quantity, columns in quantities.items():
            seen = now["sources"].get(source, {}).get(quantity, {})
            for column, figures in columns.items():
                if column in asked and column not in _RIVALS:
                    yield f"{source} {quantity} {column}", figures, seen.get(column)
    for column, shares in committed["ranges"].items():
        if column in asked:
            named = {f"{kind} in_range": share for kind, share in shares.items()}
            seen = now["ranges"].get(column, {})
            yield f"ranges {column}", named, {f"{kind} in_range": share for kind, share in seen.items()}
    fits = "calibrated" in asked  # without fits, lines that need one are not asked for either
    for name, line in committed["lines"].items():
        if "figures" in line and (name in now["lines"] or (now["lines"] and fits)):
            yield name, line["figures"], now["lines"].get(name, {}).get("figures")


def _fell(key: str, was: float, now: float, *, same_rows: bool) -> bool:
    if any(rival in key for rival in _RIVALS):
        return False
    if key.endswith(_ERRORS):
        return now > was * (1 + _SLACK) + _POINT
    if key.endswith(_SHARES):
        return now < was * (1 - _SLACK)
    return same_rows and key.endswith(_COUNTS) and now < was
