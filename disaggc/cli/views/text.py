"""Plain text for people: tables, numbers with their range, colour. Knows no verb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from disaggc.ir.plan import Prediction
from disaggc.units import format_count, format_duration


@dataclass(frozen=True, slots=True)
class Paint:
    """Colour, where the stream wants it."""

    on: bool

    def bold(self, text: str) -> str:
        """For what to read first."""
        return self._wrapped(text, "1")

    def good(self, text: str) -> str:
        """For what is added or decided."""
        return self._wrapped(text, "32")

    def notable(self, text: str) -> str:
        """For what deserves a second look."""
        return self._wrapped(text, "33")

    def bad(self, text: str) -> str:
        """For what goes away or fails."""
        return self._wrapped(text, "31")

    def _wrapped(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.on and text else text


def table(rows: Iterable[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Rows with aligned columns, two spaces apart, nothing at the end of a line."""
    lines = [list(row) for row in rows]
    columns = max((len(row) for row in lines), default=0)
    widths = [max((len(row[n]) for row in lines if n < len(row)), default=0) for n in range(columns)]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in lines
    ]


def duration_ms(number: Prediction) -> str:
    """`1.20 s (0.90 s to 2.10 s)` from milliseconds."""
    return _ranged(*(format_duration(value / 1000) for value in (number.value, number.low, number.high)))


def count(number: Prediction) -> str:
    """`6,083 (5,210 to 7,024)`."""
    return _ranged(*(format_count(value) for value in (number.value, number.low, number.high)))


def factor(number: Prediction) -> str:
    """`1.07x (0.92x to 1.21x)`."""
    return _ranged(*(f"{value:.2f}x" for value in (number.value, number.low, number.high)))


def basis_text(basis: str, carried_from: Sequence[str]) -> str:
    """`prior`, or `carried from tp4`."""
    return f"{basis} from {', '.join(carried_from)}" if basis == "carried" and carried_from else basis


def _ranged(value: str, low: str, high: str) -> str:
    return value if low == value == high else f"{value} ({low} to {high})"
