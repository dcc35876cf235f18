"""Field types of the spec that carry units: text at the edge, base units inside, a pattern for the editor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Discriminator, Field, PlainSerializer, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from disaggc import units

T = TypeVar("T")


def _reader(
    parse: Callable[[str], T], plain_number: Callable[[float], T] | None, example: str
) -> BeforeValidator:
    number = example[: len(example) - len(example.lstrip("0123456789"))]
    unit = example.removeprefix(number)

    def read(value: object) -> object:
        if isinstance(value, units.Price):
            return value
        if isinstance(value, int | float) and not isinstance(value, bool):
            if plain_number is None:
                raise _refused(
                    f"`{value}` has no unit",
                    f"write e.g. `{value}{unit}`" + (f" or `{value}ms`" if unit == "s" else ""),
                )
            return _read(lambda: plain_number(float(value)), example)
        if not isinstance(value, str):
            raise _refused(f"a quantity such as `{number}{unit}` is wanted", None)
        return _read(lambda: parse(value), example)

    return BeforeValidator(read)


def _read(parse: Callable[[], T], example: str) -> T:
    try:
        return parse()
    except units.UnitError as problem:
        raise _refused(str(problem), problem.fix or f"write e.g. `{example}`") from None


def _refused(sentence: str, hint: str | None) -> PydanticCustomError:
    return PydanticCustomError("quantity", "{sentence}", {"sentence": sentence, "hint": hint or ""})


def _schema(description: str, pattern: str, examples: list[str], *, number: bool = False) -> WithJsonSchema:
    text: dict[str, Any] = {"type": "string", "pattern": pattern}
    one: dict[str, Any] = {"anyOf": [text, {"type": "number"}]} if number else text
    return WithJsonSchema({**one, "description": description, "examples": examples})


_N = r"^\s*\+?[0-9][0-9_]*(\.[0-9]+)?([eE][+-]?[0-9]+)?\s*"
"""A number as every quantity begins."""

Size = Annotated[
    float,
    _reader(units.parse_bytes, None, "192GiB"),
    Field(gt=0),
    _schema("A size in bytes with its unit.", _N + r"([kKMGTP]i?)?B\s*$", ["192GiB", "80GB"]),
]
Speed = Annotated[
    float,
    _reader(units.parse_speed, None, "200Gbit"),
    Field(gt=0),
    _schema(
        "A speed: `Gbit` counts bits, `GB/s` bytes.",
        _N + r"(([kKMGTP]i?)?bit(/s)?|([kKMGTP]i?)?B/s)\s*$",
        ["200Gbit", "25GB/s"],
    ),
]
Duration = Annotated[
    float,
    _reader(units.parse_duration, None, "10s"),
    Field(ge=0),
    _schema(
        "A time with its unit.",
        r"^\s*\+?([0-9][0-9_.]*([eE][+-]?[0-9]+)?\s*(us|ms|sec|s|min|m|h|d)\s*)+$",
        ["200ms", "10s", "20min"],
    ),
]
DurationOrAuto = Annotated[
    Annotated[Duration, Tag("<duration>")] | Annotated[Literal["auto"], Tag("<auto>")],
    Discriminator(lambda value: "<auto>" if value == "auto" else "<duration>"),
]
Flops = Annotated[
    float,
    _reader(units.parse_flops, None, "989TFLOPS"),
    Field(gt=0),
    _schema("Dense compute rate.", _N + r"[kKMGTP]?(FLOPS|FLOP/s|OPS)\s*$", ["989TFLOPS"]),
]
Rate = Annotated[
    float,
    _reader(units.parse_rate, None, "2/s"),
    Field(gt=0),
    _schema("Requests per time.", _N + r"((req|requests)?\s*/(s|sec|m|min|h|d)|rps)\s*$", ["2/s", "120/min"]),
]
Share = Annotated[
    float,
    _reader(units.parse_share, lambda number: units.parse_share(f"{number!r}"), "30%"),
    Field(ge=0, le=1),
    _schema("A share, as `30%` or 0..1.", _N + r"%?\s*$", ["30%"], number=True),
]
Money = Annotated[
    units.Price,
    _reader(units.parse_price, None, "24 USD/h"),
    PlainSerializer(lambda price: f"{price.per_hour!r} {price.currency}/h", return_type=str),
    _schema("Money per hour.", _N + r"[A-Z]{3}\s*/\s*(h|d|month)\s*$", ["24 USD/h"]),
]
