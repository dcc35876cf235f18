"""Which fields exist at which level of the spec, read off the typed model: for near-misses and the schema's walk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from disaggc.diagnostics import FieldPath
from disaggc.spec.field_docs import field_docs
from disaggc.spec.model import Spec
from disaggc.spec.names import Part

ANY = "*"
"""Stands for a key the user chooses, or a list position, in a path."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One level. fields: name -> level below; item: level of every value of a map or a list; models: whose fields."""

    fields: Mapping[str, Shape]
    item: Shape | None = None
    models: tuple[type[Part], ...] = ()

    def below(self, part: str | int) -> Shape | None:
        """The level under a key."""
        known = self.fields.get(part) if isinstance(part, str) else None
        return known or self.item

    def doc(self, name: str) -> str:
        """What the field's docstring says; empty where there is none."""
        return next((docs[name] for model in self.models if name in (docs := field_docs(model))), "")


_LEAF = Shape({})


@cache
def spec_shape() -> Shape:
    """The whole spec."""
    return _part(Spec)


def _part(model: type[Part]) -> Shape:
    fields = {name: _of(field.annotation) for name, field in model.model_fields.items()}
    return Shape(fields, None, (model,))


def _of(annotation: Any) -> Shape:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _of(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return _joined([_of(branch) for branch in get_args(annotation)])
    if origin is dict:
        return Shape({}, _of(get_args(annotation)[1]))
    if origin is tuple:
        return Shape({}, _of(get_args(annotation)[0]))
    if isinstance(annotation, type) and issubclass(annotation, Part):
        return _part(annotation)
    return _LEAF


def _joined(branches: list[Shape]) -> Shape:
    fields: dict[str, Shape] = {}
    for branch in branches:
        fields.update(branch.fields)
    item = next((branch.item for branch in branches if branch.item is not None), None)
    return Shape(fields, item, tuple(model for branch in branches for model in branch.models))


def at(path: FieldPath) -> Shape | None:
    """The level at a path of the spec, None where there is none."""
    level: Shape | None = spec_shape()
    for part in path:
        level = level.below(part) if level is not None else None
    return level


def paths(level: Shape, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every field of the spec as a path with `*` for free keys; parents first."""
    for name, below in level.fields.items():
        yield (*path, name)
        yield from paths(below, (*path, name))
    if level.item is not None:
        yield from paths(level.item, (*path, ANY))
