"""The calibration file: text -> constants for one (model, accelerator, shape). Knows its format, not how a fit is made.

YAML, version 1:

    version: 1
    provenance: {tool: ..., disaggc: ..., sources: [...], digests: {run.json: "sha256:..."}}
    entries:
      - model: deepseek-ai/DeepSeek-R1
        accelerator: mi300x
        shape: {tp: 8}            # absent = every shape
        basis: calibrated         # or measured
        constants: {memory_eff: [0.5, 0.55, 0.6], kappa: 1.2}   # [low, mid, high] or one number
        memory: {kv_tokens: 480000}                             # of one engine, read in its log

A constant is one of those of `perf.constants.Constants`, in its unit. Later entries win over earlier ones.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from disaggc.diagnostics import Diagnostic, Outcome
from disaggc.diagnostics.model import error
from disaggc.ir.plan import Role, Shape
from disaggc.perf.constants import NAMES, SIGNED, Constants, Range, exactly
from disaggc.perf.estimate import Basis
from disaggc.resolve.model import CalibrationSource

_PATH = ("calibration",)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Provenance(_Part):
    """Where the constants come from."""

    tool: str
    disaggc: str | None = None
    created: str | None = None
    sources: tuple[str, ...] = ()
    digests: dict[str, str] = {}
    """Of each input, so that a fit can be repeated."""
    errors: dict[str, float] = {}
    """Mean relative error of each part with every run left out in turn, of all runs where there are too few."""
    note: str | None = None


class MeasuredMemory(_Part):
    """What an engine found at its start. role: only engines of that role; absent = every role."""

    kv_tokens: Annotated[int, Field(gt=0)]
    role: Role | None = None


class Entry(_Part):
    """Constants of one (model, accelerator, shape)."""

    model: str
    accelerator: str
    shape: Shape | None = None
    basis: Literal["calibrated", "measured"] = "calibrated"
    constants: dict[str, float | tuple[float, float, float]] = {}
    memory: MeasuredMemory | None = None

    @field_validator("constants")
    @classmethod
    def _known(cls, given: dict[str, float | tuple[float, float, float]]) -> object:
        for name, value in given.items():
            if name not in NAMES:
                raise ValueError(f"`{name}` is not a constant; known are {', '.join(NAMES)}")
            low = min(value) if isinstance(value, tuple) else value
            if not math.isfinite(low) or (low < 0 and name not in SIGNED):
                raise ValueError(f"`{name}` is {low:g}; it cannot be below zero")
            if isinstance(value, tuple) and not value[0] <= value[1] <= value[2]:
                raise ValueError(f"`{name}` is not ordered low, mid, high")
        return given

    def ranges(self) -> dict[str, Range]:
        """The constants as ranges."""
        return {n: Range(*v) if isinstance(v, tuple) else exactly(v) for n, v in self.constants.items()}


class Calibration(_Part):
    """The whole file."""

    version: Literal[1]
    provenance: Provenance
    entries: tuple[Entry, ...]

    def applied(self, prior: Constants, model: str, accelerator: str, *, shape: Shape) -> Constants:
        """The priors with what the file knows of this model, accelerator and shape put in their place."""
        for entry in self._entries(model, accelerator, shape):
            if not entry.constants:
                continue
            prior = replace(prior, **entry.ranges(), basis=Basis(entry.basis), source=self.provenance.tool)
        return prior

    def knows(self, model: str, accelerator: str, *, shape: Shape) -> bool:
        """Whether it says anything of this replica's step times."""
        return any(entry.constants for entry in self._entries(model, accelerator, shape))

    def kv_tokens(self, model: str, accelerator: str, *, shape: Shape, role: Role) -> int | None:
        """KV tokens one engine was seen to have; None where nobody looked."""
        found = [
            e.memory
            for e in self._entries(model, accelerator, shape)
            if e.memory is not None and e.memory.role in {None, role}
        ]
        return found[-1].kv_tokens if found else None

    def _entries(self, model: str, accelerator: str, shape: Shape) -> list[Entry]:
        return [
            e
            for e in self.entries
            if e.model == model and e.accelerator == accelerator and (e.shape is None or e.shape == shape)
        ]


def read_calibration(source: CalibrationSource) -> Outcome[Calibration]:
    """The file's entries, or DGC206 with what is wrong in it."""
    try:
        raw = yaml.safe_load(source.text)
        return Outcome(Calibration.model_validate(raw))
    except yaml.YAMLError as problem:
        return Outcome(
            None, (_bad(source, f"is not well-formed YAML ({getattr(problem, 'problem', 'syntax')})"),)
        )
    except ValidationError as problem:
        return Outcome(None, tuple(_bad(source, _told(first)) for first in problem.errors()[:5]))


def _told(problem: object) -> str:
    details = problem if isinstance(problem, dict) else {}
    where = ".".join(str(part) for part in details.get("loc", ()))
    return f"has at `{where or 'the top'}`: {str(details.get('msg', 'a wrong value')).removeprefix('Value error, ')}"


def _bad(source: CalibrationSource, text: str) -> Diagnostic:
    return error("DGC206", f"`{source.path}` {text}", _PATH, help="write it with `disaggc calibrate`")
