"""Quantities with units: parsed at the edge, plain floats in base units inside, formatted for people at the end.

Knows nothing of the spec. Base units: bytes, bytes per second, seconds, FLOP per second, requests per second,
currency per hour, and a plain share for percentages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Dimension = Literal["bytes", "speed", "duration", "flops", "rate", "price", "share"]

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_PREFIX = {**_DECIMAL, **_BINARY}
_DURATION = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0,
}  # fmt: skip
_NUMBER = r"(?P<number>[+-]?(?:\d[\d_]*)(?:\.\d+)?(?:[eE][+-]?\d+)?)"
_TOKEN = re.compile(rf"{_NUMBER}\s*(?P<unit>.*)", re.DOTALL)
_COMPOUND = re.compile(r"(?:\d+(?:\.\d+)?\s*(?:us|ms|sec|min|s|m|h|d)\s*){2,}")
_COMPOUND_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|sec|min|s|m|h|d)")


class UnitError(ValueError):
    """The text is not a quantity of the wanted dimension; the message says what would be."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Price:
    """An amount of money per hour, with its currency code as written."""

    per_hour: float
    currency: str


def _split(text: str) -> tuple[float, str]:
    match = _TOKEN.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"`{_clip(text)}` does not start with a number")
    return float(match["number"].replace("_", "")), match["unit"].strip()


def _clip(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def parse_bytes(text: str) -> float:
    """Size in bytes from `192GiB`, `64 GB`; decimal and binary prefixes keep their exact meaning."""
    number, unit = _split(text)
    if unit.endswith("bit") or (unit.endswith("b") and unit != ""):
        raise UnitError(f"`{_clip(text)}` is in bits, a size is in bytes", "write e.g. `192GiB`")
    if not unit.endswith("B") or unit[:-1] not in _PREFIX:
        raise UnitError(
            f"`{_clip(text)}` is not a size", "write a number and a unit, e.g. `192GiB` or `80GB`"
        )
    return number * _PREFIX[unit[:-1]]


def parse_speed(text: str) -> float:
    """Bytes per second from `200Gbit` (bits), `25GB/s` (bytes). A bare `b` is rejected: it is read both ways."""
    number, unit = _split(text)
    core = unit.removesuffix("/s")
    if core.endswith("bit") and core[:-3] in _PREFIX:
        return number * _PREFIX[core[:-3]] / 8
    if core.endswith("bps") and core[:-3] in _PREFIX:
        raise UnitError(
            f"`{_clip(text)}` does not say bits or bytes", f"write `{number:g}{core[:-3]}bit` for bits"
        )
    if core.endswith("b"):
        raise UnitError(
            f"`{_clip(text)}` does not say bits or bytes",
            f"write `{number:g}{core[:-1]}bit` for bits or `{number:g}{core[:-1]}B/s` for bytes",
        )
    if core.endswith("B") and core[:-1] in _PREFIX:
        if not unit.endswith("/s"):
            raise UnitError(f"`{_clip(text)}` is a size, a speed is wanted", f"write `{number:g}{core}/s`")
        return number * _PREFIX[core[:-1]]
    raise UnitError(f"`{_clip(text)}` is not a speed", "write e.g. `200Gbit` or `25GB/s`")


def parse_duration(text: str) -> float:
    """Seconds from `200ms`, `10s`, `20min`, `1h30m`."""
    compact = text.strip()
    if _COMPOUND.fullmatch(compact):
        return sum(float(n) * _DURATION[u] for n, u in _COMPOUND_PART.findall(compact))
    number, unit = _split(compact)
    if unit not in _DURATION:
        raise UnitError(
            f"`{_clip(text)}` is not a duration", "write a number and a unit, e.g. `200ms`, `10s`, `20min`"
        )
    return number * _DURATION[unit]


def parse_flops(text: str) -> float:
    """FLOP per second from `989TFLOPS` or `1.3PFLOPS`."""
    number, unit = _split(text)
    for suffix in ("FLOPS", "FLOP/s", "OPS"):
        if unit.endswith(suffix) and unit[: -len(suffix)] in _DECIMAL:
            return number * _DECIMAL[unit[: -len(suffix)]]
    raise UnitError(f"`{_clip(text)}` is not a compute rate", "write e.g. `989TFLOPS`")


def parse_rate(text: str) -> float:
    """Requests per second from `2/s`, `120/min`, `7200/h`, `2 req/s`."""
    number, unit = _split(text)
    per = {"/s": 1.0, "/sec": 1.0, "/min": 1 / 60, "/m": 1 / 60, "/h": 1 / 3600, "/d": 1 / 86400}
    core = unit.removeprefix("requests").removeprefix("req").strip()
    if core == "rps":
        core = "/s"
    if core not in per:
        raise UnitError(f"`{_clip(text)}` is not a request rate", "write e.g. `2/s` or `120/min`")
    return number * per[core]


def parse_share(text: str) -> float:
    """A share 0..1 from `30%` or a plain number in 0..1."""
    number, unit = _split(text)
    if unit == "%":
        number /= 100
    elif unit:
        raise UnitError(f"`{_clip(text)}` is not a share", "write e.g. `30%` or `0.3`")
    if not 0 <= number <= 1:
        raise UnitError(f"`{_clip(text)}` is outside 0 % to 100 %", "write e.g. `30%`")
    return number


def parse_price(text: str) -> Price:
    """Money per hour from `24 USD/h`."""
    number, unit = _split(text)
    match = re.fullmatch(r"([A-Z]{3})\s*/\s*(h|d|month)", unit)
    if match is None:
        raise UnitError(
            f"`{_clip(text)}` is not a price", "write an amount, a currency and `/h`, e.g. `24 USD/h`"
        )
    hours = {"h": 1.0, "d": 24.0, "month": 730.0}[match[2]]
    return Price(number / hours, match[1])


def format_bytes(value: float) -> str:
    """`188.4 GiB` for people; binary prefixes because memory is sold and reported in them."""
    for prefix in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if abs(value) >= _BINARY[prefix]:
            return f"{value / _BINARY[prefix]:.1f} {prefix}B"
    return f"{value:.0f} B"


def format_speed(value: float) -> str:
    """`25.0 GB/s` for people."""
    for prefix in ("P", "T", "G", "M", "k"):
        if abs(value) >= _DECIMAL[prefix]:
            return f"{value / _DECIMAL[prefix]:.1f} {prefix}B/s"
    return f"{value:.0f} B/s"


def format_duration(seconds: float) -> str:
    """`88.4 ms`, `1.20 s`, `12.1 min` for people."""
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if abs(seconds) < 1:
        return f"{seconds * 1e3:.1f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def format_count(value: float) -> str:
    """`6,082.8` below a million with one digit, then `1.2M`."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.1f}M"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.1f}"


def counted(count: int, noun: str) -> str:
    """`1 run`, `13 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
