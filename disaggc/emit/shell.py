"""The few lines of shell that stand before a process in a container. Only checked names enter them, never a text."""

from __future__ import annotations

import re
from collections.abc import Iterable

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def required_variables(names: Iterable[str]) -> str:
    """Ends the container with a message when a variable that comes from a secret is not set."""
    return "".join(f': "${{{_checked(name)}:?comes from a secret that is not there}}"; ' for name in names)


def _checked(name: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a variable's name")
    return name


RUN_ARGUMENTS = 'exec "$@"'
"""Becomes the program that is given as arguments, so that signals reach it."""
