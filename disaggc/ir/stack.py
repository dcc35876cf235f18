"""The list of processes that target local is made of: emitters write it, whoever starts them reads it. Starts none."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from disaggc.ir.wording import faults


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class StackProgram(_Part):
    """One process."""

    name: str
    """Program of the supervisord configuration."""
    address: str
    """Plan address, `service/role/index`."""
    kind: Literal["engine", "proxy"]
    """What it does."""
    executable: str
    """An absolute path, or a name to look for on the search path."""
    ready: str | None
    """URL that answers 200 once it serves; None for the later nodes of a replica, which serve nothing."""
    ports: tuple[int, ...]
    """Loopback ports it listens on for others."""
    secrets: tuple[str, ...] = ()
    """Variables that must stand in the environment it is started from."""
    faults: str | None = None
    """Where faults are switched on in a double; None for what is none."""


class Stack(_Part):
    """All of them, engines first."""

    version: Literal[1] = 1
    """Format of this file."""
    programs: tuple[StackProgram, ...]
    """The processes."""


class StackError(ValueError):
    """The text is not such a list; the message says why."""


def load_stack(text: str) -> Stack:
    """The list in a JSON text."""
    try:
        return Stack.model_validate_json(text)
    except ValidationError as problem:
        raise StackError(faults(problem, "file")[0]) from None


def dump_stack(stack: Stack) -> str:
    """Canonical text."""
    return stack.model_dump_json(indent=2) + "\n"
