"""A value of another type than the flag takes.

A boolean flag takes true or false, a number flag a number, a JSON flag a mapping. vLLM's parser would refuse the
text at start, on every replica.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.owned import OWNED_FLAGS
from disaggc.rules.given import GivenFlag, flags
from disaggc.rules.rule import Finding, SpecRule

_WANTED = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "json": "a mapping",
    "list": "a list",
    "choice": "one of its choices",
}
_HUMAN = "0123456789.kKmMgGtTbBiI"


def _fits(given: GivenFlag, kind: str) -> bool:
    value = given.value
    if value is None or given.key:
        return True
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "bool": isinstance(value, bool),
        # vLLM reads 8k and 1.5M as whole numbers; `auto` has a meaning for some of its flags.
        "int": (number and not isinstance(value, float))
        or (isinstance(value, str) and _reads_as_count(value)),
        "float": number,
        "json": isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{")),
        "list": not isinstance(value, dict | bool),
        "choice": not isinstance(value, dict | list),
    }
    return fits.get(kind, True)


def _reads_as_count(text: str) -> bool:
    return text == "auto" or (text != "" and not text.strip(_HUMAN))


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Known, user-settable flags whose value has another type than their kind; `no-` forms take only true."""
    for service in resolved.services:
        for given in flags(service):
            if given.facts is None or given.flag in OWNED_FLAGS:
                continue
            kind = given.facts.kind
            if given.negated and (kind != "bool" or given.value is not True):
                help_text = f"write `{given.flag}: false`" if kind == "bool" else f"write `{given.flag}`"
                yield Finding(
                    f"`{given.written}` is the switched-off form of `{given.flag}` and takes only true",
                    given.path,
                    help=help_text,
                )
            elif not _fits(given, kind):
                yield Finding(
                    f"`{given.written}` takes {_WANTED.get(kind, kind)}, here stands {given.value!r}; "
                    "every engine would refuse to start",
                    given.path,
                    help=_example(given, kind),
                )


def _example(given: GivenFlag, kind: str) -> str:
    default = given.facts.default if given.facts is not None else None
    example = {"bool": "true", "int": "1", "float": "0.5", "json": "{key: value}", "list": "[a, b]"}.get(
        kind, "text"
    )
    shown = default if default not in (None, "None", "") else example
    return f"write e.g. `{given.written}: {shown}`"


RULE = SpecRule(
    "DGC212",
    "flag-value",
    Severity.ERROR,
    check,
    sources=("vLLM: vllm/engine/arg_utils.py, types of the parser's arguments",),
    fails=(
        """
        services: {chat: {engine: {settings: {gpu-memory-utilization: high}}}}
        #                                                             ^ DGC212
        """,
        """
        services: {chat: {engine: {settings: {enforce-eager: 1}}}}
        #                                                    ^ DGC212
        """,
    ),
    passes=("services: {chat: {engine: {settings: {gpu-memory-utilization: 0.9, enforce-eager: true}}}}",),
)
