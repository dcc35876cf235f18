"""Typed, bounded reads of a config.json: every problem becomes one diagnostic that names its key, never an exception.

Knows JSON values and key aliases; refuses to know what an architecture means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from disaggc.diagnostics import Diagnostic, error

CODE = "DGC203"
_TEXT_LIMIT = 8_000_000
_SHOWN = 40


class Keys:
    """One JSON object of a config. A failed read notes a problem and returns a harmless value, so that all are told."""

    def __init__(self, raw: Mapping[str, Any], source: str, problems: list[Diagnostic]) -> None:
        self.raw = raw
        self.source = source
        self.problems = problems

    def refuse(self, message: str, *, help: str | None = None) -> None:  # noqa: A002 - the diagnostic's field
        """Note a problem with this config, once."""
        problem = error(CODE, f"`{self.source}`: {message}", help=help)
        if problem not in self.problems:
            self.problems.append(problem)

    def has(self, *names: str) -> bool:
        """Whether one of the keys is present and not null."""
        return self._found(names) is not None

    def _found(self, names: tuple[str, ...]) -> tuple[str, Any] | None:
        return next(((name, self.raw[name]) for name in names if self.raw.get(name) is not None), None)

    def required(self, *names: str, high: int) -> int:
        """A whole number 1..high under the first present name; its absence is a problem."""
        if not self.has(*names):
            self.refuse(f"`{names[0]}` is missing, so the model cannot be sized")
            return 1
        return self.integer(*names, low=1, high=high, default=1)

    def integer(self, *names: str, high: int, default: int, low: int = 0) -> int:
        """A whole number low..high under the first present name, else the default."""
        found = self._found(names)
        if found is None:
            return default
        name, value = found
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]  # one entry for each layer, all alike
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(f"`{name}` is {_shown(value)}, a whole number is wanted")
            return max(low, 1)
        if not low <= value <= high:
            self.refuse(f"`{name}` is {_shown(value)}, outside {low} to {high}")
            return max(low, 1)
        return value

    def number(self, name: str, *, default: float) -> float:
        """A finite number above 0, else the default where absent."""
        value = self.raw.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            self.refuse(f"`{name}` is {_shown(value)}, a number above 0 is wanted")
            return default
        return float(value)

    def flag(self, *names: str, default: bool) -> bool:
        """True or false under the first present name."""
        found = self._found(names)
        if found is None:
            return default
        if not isinstance(found[1], bool):
            self.refuse(f"`{found[0]}` is {_shown(found[1])}, true or false is wanted")
            return default
        return found[1]

    def text(self, *names: str, default: str = "") -> str:
        """A string under the first present name."""
        found = self._found(names)
        if found is None:
            return default
        if not isinstance(found[1], str):
            self.refuse(f"`{found[0]}` is {_shown(found[1])}, a text is wanted")
            return default
        return found[1]

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; absent = empty."""
        value = self.raw.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.refuse(f"`{name}` is {_shown(value)}, a list of texts is wanted")
            return ()
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers; absent = empty."""
        value = self.raw.get(name)
        if value is None:
            return ()
        whole = isinstance(value, list) and all(isinstance(i, int) and abs(i) < 10**9 for i in value)
        if not whole:
            self.refuse(f"`{name}` is {_shown(value)}, a list of whole numbers is wanted")
            return ()
        return tuple(int(item) for item in value)

    def per_layer(self, *names: str, layers: int, high: int, default: int) -> tuple[int, ...]:
        """One whole number for each layer: a plain number for all, or a list with one for each."""
        found = self._found(names)
        if found is None or not isinstance(found[1], list):
            return (self.integer(*names, high=high, default=default),) * layers
        name, values = found
        whole = all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= high for v in values)
        if not whole or len(values) < layers:
            self.refuse(
                f"`{name}` has {len(values)} entries for {layers} layers, or one that is no whole number 0 to {high}"
            )
            return (max(default, 1),) * layers
        return tuple(values[:layers])

    def section(self, name: str) -> Keys | None:
        """A nested object; absent = None."""
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(f"`{name}` is {_shown(value)}, an object is wanted")
            return None
        return Keys(value, self.source, self.problems)


def parse_object(text: str, source: str) -> tuple[Mapping[str, Any] | None, list[Diagnostic]]:
    """The JSON object in the text, or why there is none."""
    if len(text) > _TEXT_LIMIT:
        return None, [
            error(CODE, f"`{source}` has {len(text)} characters, a config.json has at most {_TEXT_LIMIT}")
        ]
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno} column {problem.colno}"
        return None, [error(CODE, f"`{source}` is not JSON: {problem.msg.lower()} at {where}")]
    except (ValueError, RecursionError):
        return None, [
            error(CODE, f"`{source}` is not usable JSON: it nests too deep or holds a number without end")
        ]
    if not isinstance(value, dict):
        return None, [error(CODE, f"`{source}` holds {_kind(value)}, a config.json is an object")]
    return value, []


def _kind(value: object) -> str:
    return {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(
        type(value), "a number"
    )


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a number of more than 38 digits"
    text = json.dumps(value)
    return f"`{text}`" if len(text) <= _SHOWN else f"`{text[: _SHOWN - 3]}...`"
