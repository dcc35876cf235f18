"""A command line of `vllm serve`, split by what that vLLM version knows: flags with their values, and the model.

The flags are the catalog's snapshot of that version, so a misspelt one stops the double as it stops vLLM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence

from disaggc.catalog.engine_files import engine_snapshot, engine_versions
from disaggc.catalog.engines import EngineSnapshot, FlagUse
from disaggc.simengine.connector import OptionError
from disaggc.spec.near import nearest

_NUMBER = re.compile(r"-\d+(\.\d+)?")

Given = dict[str, list[str]]
"""Values by name without dashes; a flag that switches a boolean off is `no-<name>`."""


def split(arguments: Sequence[str], own: Collection[str], *, version: str) -> tuple[Given, str]:
    """The flags of `serve MODEL <flags>`, and the model, empty without one. own: flags that vLLM does not have."""
    words = list(arguments)
    if words[:1] != ["serve"]:
        started = f"`{words[0]}` is not a subcommand; " if words and not words[0].startswith("-") else ""
        raise OptionError(f"{started}write `serve MODEL` and its flags, as for `vllm`")
    known = _snapshot(version)
    given: Given = {}
    model = ""
    rest = iter(_regrouped(words[1:]))
    waiting = next(rest, None)
    while waiting is not None:
        word, waiting = waiting, next(rest, None)
        if not _is_flag(word):
            if model:
                raise OptionError(f"unrecognized argument: {word}")
            model = word
            continue
        name, equals, value = word.partition("=")
        use = None if name.lstrip("-") in own else _use(known, name, own)
        values = [value] if equals else []
        if not equals and not (use and use.flag.kind == "bool"):
            many = use is not None and use.flag.kind == "list"
            while waiting is not None and not _is_flag(waiting) and (many or not values):
                values.append(waiting)
                waiting = next(rest, None)
            if not values:
                raise OptionError(f"{name} wants a value")
        _add(given, name.lstrip("-"), use, values=values)
    return given, model


def _snapshot(version: str) -> EngineSnapshot:
    found = engine_snapshot(version).value
    if found is None:
        raise OptionError(f"--engine-version {version[:40]} is not one of {', '.join(engine_versions())}")
    return found


def _regrouped(words: Sequence[str]) -> Iterator[str]:
    """`-O3` as `--optimization-level=3`: the one flag whose value sticks to it."""
    for word in words:
        yield f"--optimization-level={word[2:]}" if re.fullmatch(r"-O\d", word) else word


def _is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)


def _use(known: EngineSnapshot, name: str, own: Collection[str]) -> FlagUse:
    bare = name.lstrip("-")
    found = known.flag(bare)
    # One dash is for the short spellings alone.
    if found is not None and (name.startswith("--") or bare in found.flag.aliases):
        return found
    near = nearest(bare, (*known.flags, *own))
    meant = f"; did you mean --{near}?" if near else ""
    raise OptionError(f"unrecognized argument: {name[:80]} (vLLM {known.text} does not have it){meant}")


def _add(given: Given, name: str, use: FlagUse | None, *, values: list[str]) -> None:
    if use is None:
        given[name] = values
        return
    flag = use.flag
    if flag.kind == "bool":
        given.pop(f"no-{flag.name}" if not use.negated else flag.name, None)
        given[f"no-{flag.name}" if use.negated else flag.name] = []
    elif use.key is not None:
        given[flag.name] = [_merged(given.get(flag.name), use.key, values[-1], flag=flag.name)]
    else:
        given[flag.name] = values


def _merged(before: list[str] | None, key: str, text: str, *, flag: str) -> str:
    """The JSON of a flag with one more of its fields, given as `--flag.a.b TEXT`."""
    try:
        whole = json.loads(before[-1]) if before else {}
        place = whole
        *path, last = key.split(".")
        for step in path:
            place = place.setdefault(step, {})
        place[last] = _literal(text)
    except (ValueError, TypeError, AttributeError):
        raise OptionError(f"--{flag}.{key} does not fit what --{flag} says") from None
    return json.dumps(whole)


def _literal(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
