"""The calibration file: text -> constants for one (model, accelerator, shape). Knows its format, not how a fit is made.

YAML, version 1, read by the spec's own reader, so that every mistake is reported at its place:

    version: 1
    provenance: {tool: ..., disaggc: ..., sources: [...], digests: {run.json: "sha256:..."}}
    entries:
      - model: deepseek-ai/DeepSeek-R1
        accelerator: mi300x
        shape: {tp: 8}            # absent = every shape
        basis: calibrated         # or measured
        constants: {memory_eff: [0.5, 0.55, 0.6], kappa: 1.2}   # [low, mid, high] or one number
        memory: {kv_tokens: 480000}                             # of one engine, read in its log

A constant is one of those of `perf.constants.Constants`, in its unit, within `perf.constant_bounds`. Later entries win
over earlier ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from disaggc.diagnostics import Diagnostic, FieldPath, Outcome, path_text
from disaggc.ir.plan import Role, Shape
from disaggc.perf.constant_bounds import incomplete, out_of_bounds
from disaggc.perf.constants import NAMES, Constants, Range, exactly
from disaggc.perf.estimate import Basis
from disaggc.resolve.model import CalibrationSource
from disaggc.spec.findings import finding
from disaggc.spec.near import nearest
from disaggc.spec.tree import SourceMap, child, plain
from disaggc.spec.yaml_source import parse

MOST_KV_TOKENS = 10**10
"""KV tokens that no engine holds."""
_HELP = "write it with `disaggc calibrate`"
_SHOWN = 5
_WORDS = {
    "missing": "it is absent",
    "extra_forbidden": "there is no such field",
    "model_type": "a mapping is wanted",
    "model_attributes_type": "a mapping is wanted",
    "dict_type": "a mapping is wanted",
    "tuple_type": "a list is wanted",
    "string_type": "a text is wanted",
    "int_type": "a whole number is wanted",
    "float_type": "a number is wanted",
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Provenance(_Part):
    """Where the constants come from."""

    tool: str
    disaggc: str | None = None
    created: str | None = None
    sources: Annotated[tuple[str, ...], Field(strict=False)] = ()
    digests: dict[str, str] = {}
    """Of each input, so that a fit can be repeated."""
    errors: dict[str, float] = {}
    """Mean relative error of each part with every run left out in turn, of all runs where there are too few."""
    note: str | None = None


class MeasuredMemory(_Part):
    """What an engine found at its start. role: only engines of that role; absent = every role."""

    kv_tokens: Annotated[int, Field(gt=0, le=MOST_KV_TOKENS)]
    role: Annotated[Role | None, Field(strict=False)] = None


class Entry(_Part):
    """Constants of one (model, accelerator, shape)."""

    model: Annotated[str, Field(min_length=1)]
    accelerator: Annotated[str, Field(min_length=1)]
    shape: Shape | None = None
    basis: Literal["calibrated", "measured"] = "calibrated"
    constants: dict[str, Any] = {}
    """Name -> a number, or its range as (low, mid, high)."""
    memory: MeasuredMemory | None = None

    @field_validator("shape")
    @classmethod
    def _positive(cls, given: Shape | None) -> Shape | None:
        if given is not None and min(given.model_dump().values()) < 1:
            raise ValueError(f"{given} is no shape")
        return given

    @field_validator("constants")
    @classmethod
    def _known(cls, given: dict[str, Any]) -> object:
        kept = {name: _stated(name, value) for name, value in given.items()}
        ranges = {n: Range(*v) if isinstance(v, tuple) else exactly(v) for n, v in kept.items()}
        problem = next((w for n, r in ranges.items() if (w := out_of_bounds(n, r))), None) or incomplete(
            ranges
        )
        if problem is not None:
            raise ValueError(problem)
        return kept

    def ranges(self) -> dict[str, Range]:
        """The constants as ranges."""
        return {n: Range(*v) if isinstance(v, tuple) else exactly(v) for n, v in self.constants.items()}


class Calibration(_Part):
    """The whole file."""

    version: Literal[1]
    provenance: Provenance
    entries: Annotated[tuple[Entry, ...], Field(strict=False)]

    @field_validator("version", mode="before")
    @classmethod
    def _whole(cls, given: object) -> object:
        return given if type(given) is int else None  # true and 1.0 equal 1

    def applied(self, prior: Constants, model: str, accelerator: str, *, shape: Shape) -> Constants:
        """The priors with what the file knows of this model, accelerator and shape put in their place."""
        for entry in self._entries(model, accelerator, shape):
            if not entry.constants:
                continue
            told = self.provenance.tool
            prior = replace(prior, **entry.ranges(), basis=Basis(entry.basis), source=told, carried_from=())
        return prior

    def knows(self, model: str, accelerator: str, *, shape: Shape) -> bool:
        """Whether it says anything of this replica's step times."""
        return any(entry.constants for entry in self._entries(model, accelerator, shape))

    def states(self, model: str, accelerator: str, *, shape: Shape) -> dict[str, Range]:
        """The constants it states of this replica."""
        found: dict[str, Range] = {}
        for entry in self._entries(model, accelerator, shape):
            found |= entry.ranges()
        return found

    def shapes(self, model: str, accelerator: str) -> tuple[Shape, ...]:
        """Those of which it states constants."""
        found = [
            e.shape for e in self.entries if e.model == model and e.accelerator == accelerator and e.constants
        ]
        return tuple(dict.fromkeys(shape for shape in found if shape is not None))

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


def _stated(name: str, value: object) -> float | tuple[float, float, float]:
    """A constant as the file says it: a number or three."""
    if name not in NAMES:
        near = nearest(name, NAMES)
        raise ValueError(f"`{name[:40]}` is not a constant" + (f"; did you mean `{near}`?" if near else ""))
    parts = tuple(value) if isinstance(value, list | tuple) else (value,)
    numbers = [float(part) for part in parts if isinstance(part, int | float) and not isinstance(part, bool)]
    match numbers:
        case [one] if len(parts) == 1:
            return one
        case [low, mid, high] if len(parts) == 3:
            return low, mid, high
    raise ValueError(f"`{name}` is `{str(value)[:40]}`, a number or [low, mid, high] is wanted")


def read_calibration(source: CalibrationSource) -> Outcome[Calibration]:
    """The file's entries, or DGC206 with what is wrong in it, at its place there."""
    parsed = parse(source.text, source.path)
    if parsed.value is None or parsed.diagnostics:
        return Outcome(None, tuple(_unread(one) for one in parsed.diagnostics[:_SHOWN]))
    root = parsed.value.root
    try:
        return Outcome(Calibration.model_validate(plain(root)))
    except ValidationError as problem:
        errors = problem.errors(include_url=False)[:_SHOWN]
        return Outcome(None, tuple(_bad(SourceMap(root), item) for item in errors))


def _unread(found: Diagnostic) -> Diagnostic:
    message = f"the calibration file cannot be read: {found.message}"
    return replace(found, code="DGC206", message=message, help=found.help or _HELP)


def _bad(places: SourceMap, item: Any) -> Diagnostic:
    """One of pydantic's errors, where it stands."""
    path: FieldPath = ()
    node: Any = places.root
    for part in item["loc"]:
        below = child(node, part) if node is not None else None
        if below is None and item["type"] != "missing":
            break
        path, node = (*path, part), below
    if path == ("version",):
        text = "has another version than 1: another disaggc wrote it"
    else:
        said = str(item["msg"]).removeprefix("Value error, ")
        said = _WORDS.get(item["type"], said[:1].lower() + said[1:])
        text = f"cannot be used, `{path_text(path) or 'the top'}`: {said}"
    return finding("DGC206", f"the calibration file {text}", places.value(path), help=_HELP)
