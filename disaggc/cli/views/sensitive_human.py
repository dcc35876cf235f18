"""How a plan answers to change, for people: a row for each quantity, with where another layout takes over."""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.cli.sensitive import Sensitive
from disaggc.perf.sensitivity import BreakEven, Sensitivity
from disaggc.units import format_speed

_WORDS = {
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "rate": "rate",
    "concurrency": "concurrency",
    "bandwidth": "network card",
    "price": "price",
}
_OVERLOAD = 20.0
"""Factor on the latency from which it only tells how long the overload has lasted."""


def sensitivity_rows(changes: Sensitive) -> Iterator[tuple[str, ...]]:
    """Rows of a table."""
    yield (
        "if this changes",
        "now",
        "halved: total tok/s",
        "e2e p50",
        "doubled: total tok/s",
        "e2e p50",
        "another layout is better",
    )
    for found in changes.found:
        by_factor = {response.factor: response for response in found.responses}
        cells: list[str] = []
        for factor in (0.5, 2.0):
            response = by_factor.get(factor)
            if response is None:
                cells += ["-", "-"]
            elif found.quantity == "price" and response.tokens_per_cost is not None:
                cells += [f"{response.tokens_per_cost:.2f}x per cost", ""]
            else:
                slower = response.e2e_p50
                wait = f"{slower:.2f}x" if slower < _OVERLOAD else "queue grows"
                cells += [f"{response.total_tok_per_s:.2f}x", wait]
        where = ", ".join(_break_even(found, b, changes) for b in found.break_evens)
        yield (_WORDS[found.quantity], _value(found, found.value, changes), *cells, where)


def unanswered(changes: Sensitive) -> Iterator[str]:
    """What the dashes of the table stand for."""
    by_reason: dict[str, list[str]] = {}
    for found in changes.found:
        for one in found.unanswered:
            how = "halved" if one.factor < 1 else "doubled"
            by_reason.setdefault(one.reason, []).append(f"{_WORDS[found.quantity]} {how}")
    for reason, cells in by_reason.items():
        yield f"-: {', '.join(cells)}: {reason}"


def _break_even(found: Sensitivity, b: BreakEven, changes: Sensitive) -> str:
    side = "from" if b.above else "below"
    rounded = float(f"{b.value:.2g}")  # found to 1 %
    return f"{side} {_value(found, rounded, changes)}: {changes.names[b.better]}"


def _value(found: Sensitivity, value: float, changes: Sensitive) -> str:
    match found.quantity:
        case "bandwidth":
            return format_speed(value)
        case "rate":
            return f"{value:.3g}/s"
        case "price":
            return f"{value:g} {changes.currency}/h"
        case _:
            return f"{value:,.0f}"
