"""Types and bounds of the fields of request bodies, as vLLM's own models declare them. Knows no answer and no error.

Those types are pydantic's lax ones: `"true"`, `1` and `"on"` are true, `"5"` and `5.0` are five.

Fields the double makes nothing of are checked too, where a wrong type would stop a request at vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

Check = Callable[[Any], bool]
_INT64 = 1 << 63


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> bool:
    """A whole number that vLLM compares before its type is looked at, so that a text is refused."""
    return _whole(value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _object(value: Any) -> bool:
    return isinstance(value, dict)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


_texts, _wholes, _objects = _list_of(_text), _list_of(_whole), _list_of(_object)


def _text_or(check: Check) -> Check:
    return lambda value: isinstance(value, str) or check(value)


def _between(low: float, high: float) -> Check:
    def check(value: Any) -> bool:
        return _number(value) and low <= value <= high

    _READ_AS[check] = _READ_AS[_number]
    return check


_READ_AS: dict[Check, Callable[[Any], Any]] = {
    _flag: TypeAdapter(bool).validate_python,
    _whole: TypeAdapter(int).validate_python,
    _count: lambda value: value if isinstance(value, str) else TypeAdapter(int).validate_python(value),
    _number: TypeAdapter(float).validate_python,
    _wholes: TypeAdapter(list[int]).validate_python,
}
"""Checks that a value in other words passes too, and what it is read as."""


_EVERYWHERE: dict[str, tuple[Check, str]] = {
    "model": (_text, "a valid string"),
    "stream": (_flag, "a valid boolean"),
    "stream_options": (_object, "a valid dictionary"),
    "n": (_whole, "a valid integer"),
    "max_tokens": (_whole, "a valid integer"),
    "max_completion_tokens": (_whole, "a valid integer"),
    "max_output_tokens": (_whole, "a valid integer"),
    "min_tokens": (_whole, "a valid integer"),
    "seed": (_whole, "a valid integer"),
    "top_k": (_whole, "a valid integer"),
    "top_logprobs": (_count, "a valid integer"),
    "temperature": (_number, "a valid number"),
    "top_p": (_between(0, 1), "a number between 0 and 1"),
    "presence_penalty": (_between(-2, 2), "a number between -2 and 2"),
    "frequency_penalty": (_between(-2, 2), "a number between -2 and 2"),
    "echo": (_flag, "a valid boolean"),
    "ignore_eos": (_flag, "a valid boolean"),
    "return_token_ids": (_flag, "a valid boolean"),
    "stop": (_text_or(_texts), "a valid string or a list of strings"),
    "stop_sequences": (_texts, "a list of strings"),
    "stop_token_ids": (_wholes, "a list of integers"),
    "tools": (_objects, "a list of dictionaries"),
    "tool_choice": (_text_or(_object), "a valid string or a dictionary"),
    "messages": (_objects, "a list of dictionaries"),
    "instructions": (_text, "a valid string"),
    "user": (_text, "a valid string"),
    "vllm_xargs": (_object, "a valid dictionary"),
    "kv_transfer_params": (_object, "a valid dictionary"),
}  # fmt: skip
_SIDE = (
    _text_or(lambda v: _object(v) or _list_of(lambda one: _text(one) or _object(one))(v)),
    "a text, a dictionary, or a list of them",
)
_INPUT = (
    _text_or(lambda v: isinstance(v, list) and bool(v) and (_texts(v) or _wholes(v) or _list_of(_wholes)(v))),
    "a valid string, a list of strings, or a list of token ids",
)
_BY_API: dict[str, dict[str, tuple[Check, str]]] = {
    "completions": {"logprobs": (_count, "a valid integer")},
    "chat": {"logprobs": (_flag, "a valid boolean")},
    "batch": {
        "logprobs": (_flag, "a valid boolean"),
        "messages": (lambda v: bool(v) and _list_of(_objects)(v) and all(v), "a list of conversations"),
    },
    "responses": {"input": (_text_or(_objects), "a valid string or a list of dictionaries")},
    "messages": {"system": (_text_or(_objects), "a valid string or a list of dictionaries")},
    "count_tokens": {"system": (_text_or(_objects), "a valid string or a list of dictionaries")},
    "score": dict.fromkeys(("queries", "documents", "items", "data_1", "data_2", "text_1", "text_2"), _SIDE),
    "rerank": {
        "query": (_text_or(_object), "a valid string or a dictionary"),
        "documents": _SIDE,
        "top_n": (_whole, "a valid integer"),
    },
    "pooling": {"input": _INPUT},
    "embed": {
        "texts": (_texts, "a list of strings"), "images": (_texts, "a list of strings"),
        "inputs": (_objects, "a list of dictionaries"),
    },
    "tokenize": {"prompt": (_text, "a valid string")},
    "detokenize": {"tokens": (_wholes, "a list of integers")},
    "embeddings": {"input": _INPUT},
}  # fmt: skip
_INSIDE = (
    ("stream_options", "include_usage", _flag, "a valid boolean"),
    ("stream_options", "continuous_usage_stats", _flag, "a valid boolean"),
    ("vllm_xargs", "sim_tokens", _number, "a valid number"),
)
_NEEDED = {
    "batch": ("messages",), "embeddings": ("input",), "detokenize": ("tokens",), "rerank": ("query", "documents"),
    "count_tokens": ("model", "messages"),
}  # fmt: skip


def wrong_field(api: str, body: dict[str, Any]) -> tuple[str, str] | None:
    """The first field that is not of its type, and what is wrong with it; None when all are. Null is as not given.

    Values in other words are replaced by what they are read as.
    """
    for name, (check, wanted) in {**_EVERYWHERE, **_BY_API.get(api, {})}.items():
        if not _reads(body, name, check):
            return name, f"{name}: Input should be {wanted}"
    for outer, name, check, wanted in _INSIDE:
        if not _reads(body.get(outer) or {}, name, check):
            return outer, f"{outer}.{name}: Input should be {wanted}"
    for name in _NEEDED.get(api, ()):
        if body.get(name) is None:
            return name, f"{name}: Field required"
    return None


def _reads(body: dict[str, Any], name: str, check: Check) -> bool:
    value = body.get(name)
    if value is None or check(value):
        return True
    try:
        value = _READ_AS[check](value)
    except (KeyError, ValueError):
        return False
    body[name] = value
    return check(value)
