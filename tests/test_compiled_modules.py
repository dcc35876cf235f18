"""The modules that the wheel's build hook compiles: each is there and holds nothing that mypyc cannot have.

Refused here in a moment, where a build would say so after a minute, or a compiled proxy only when it runs.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import importlib
import tomllib
from pathlib import Path

import msgspec
import pydantic
import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]

FORBIDDEN: dict[type, str] = {
    msgspec.Struct: "msgspec makes it by its own metaclass: what it decodes would not be the compiled class",
    pydantic.BaseModel: "pydantic makes it by its own metaclass",
    asyncio.BaseProtocol: "deriving from an interpreted class makes it a slow one",
}
RAISED = {Exception, LookupError, IndexError, ValueError}
"""The exceptions that mypyc lets a class derive from."""


def faults(kind: type) -> list[str]:
    found = [why for base, why in FORBIDDEN.items() if issubclass(kind, base)]
    if issubclass(kind, BaseException) and (set(kind.__bases__) - RAISED or vars(kind).get("__init__")):
        found.append("mypyc takes an exception only where it derives from one of a few and adds nothing")
    if dataclasses.is_dataclass(kind) and "__slots__" in vars(kind):
        found.append("slots=True makes a second class, which is not the compiled one")
    return found


def test_the_list_is_sorted_and_names_each_once():
    assert sorted(set(MODULES)) == MODULES


@pytest.mark.parametrize("name", MODULES)
def test_a_compiled_module_defines_only_what_can_be_compiled(name):
    path = ROOT / f"{name.replace('.', '/')}.py"
    assert path.is_file()
    module = importlib.import_module(name)
    classes = [node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    nested = [kind for kind in classes if not hasattr(module, kind)]
    assert not nested, "mypyc compiles no class inside of another or of a function"
    bad = [(kind, why) for kind in classes for why in faults(getattr(module, kind))]
    assert not bad


class Decoded(msgspec.Struct):
    a: int


class Checked(pydantic.BaseModel):
    a: int


class Spoken(asyncio.Protocol):
    pass


class MissingError(KeyError):
    pass


@dataclasses.dataclass(slots=True)
class Slotted:
    a: int


@dataclasses.dataclass(frozen=True)
class Plain:
    a: int


class RefusedError(ValueError):
    """Nothing more."""


@pytest.mark.parametrize("kind", [Decoded, Checked, Spoken, MissingError, Slotted])
def test_what_cannot_be_compiled_is_refused(kind):
    assert faults(kind)


@pytest.mark.parametrize("kind", [Plain, RefusedError])
def test_what_can_be_is_not(kind):
    assert not faults(kind)
