"""A fit -> the calibration file that plans pick up, with where every number comes from. No I/O.

The front end's time stands in the fitted first tokens already, so that only the proxy's own leg is left beside them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from disaggc.ir.plan import Shape
from disaggc.perf.calibration.engine_fit import EngineFit
from disaggc.perf.calibration.level_fit import LEVEL, LevelFit
from disaggc.perf.calibration.parts import Part
from disaggc.perf.calibration_file import Calibration, Entry, MeasuredMemory, Provenance
from disaggc.perf.constants import Z90, Range, exactly

_OWN_LEG = Range(0.3e-3, 1e-3, 4e-3)
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Fitted:
    """The fit of one (model, accelerator, shape). kv_tokens: of one engine, where its log was read."""

    model: str
    accelerator: str
    shape: Shape
    fit: EngineFit
    kv_tokens: int | None = None
    beside: Mapping[str, float] = field(default_factory=dict)
    """Values of the model that a level of the decode step was taken against."""
    doubt: float = LEVEL
    """Relative standard error of a decode step before anything was measured."""


def calibration_of(fitted: list[Fitted], provenance: Provenance) -> Calibration:
    """The file's content; parts that were not fitted leave their constants to the priors."""
    return Calibration(
        version=1,
        provenance=provenance,
        entries=tuple(
            Entry(
                model=one.model,
                accelerator=one.accelerator,
                shape=one.shape,
                basis="calibrated",
                constants={
                    name: _three(given)
                    for name, given in constants_of(one.fit, one.beside, one.doubt).items()
                },
                memory=None if one.kv_tokens is None else MeasuredMemory(kv_tokens=one.kv_tokens),
            )
            for one in fitted
        ),
    )


def constants_of(
    fit: EngineFit, beside: Mapping[str, float] | None = None, doubt: float = LEVEL
) -> dict[str, Range]:
    """The constants that a fit states. beside: what a level was taken against, stated with it.

    doubt: of a decode step before the runs, which cannot leave its level in more of it.
    """
    out: dict[str, Range] = {}
    for part in fit.parts:
        found = part.ranges()
        if part.title == "kv transfer":
            byte = found.pop("kv_byte_s")
            if byte.mid > 0:
                found["kv_bytes_per_s"] = Range(1 / byte.high, 1 / byte.mid, 1 / byte.low)
        out |= found
    for title, name in (("decode step", "step_miss"), ("prefill", "prompt_miss")):
        of_title = fit.part(title)
        if of_title is not None:
            out[name] = _with(out.get(name), _unexplained(of_title), most=Z90 * min(LEVEL, doubt))
            if isinstance(of_title.fit, LevelFit):
                out |= {known: exactly(value) for known, value in (beside or {}).items()}
    if fit.part("prefill") is not None:
        out["hop_s"] = _OWN_LEG
    return out | dict(fit.single)


def _with(level: Range | None, factor: Range, *, most: float) -> Range:
    """A level in doubt, times what the fit leaves unexplained: independent, so their logarithms add as squares."""
    if level is None:
        return factor
    width = math.exp(min(most, math.hypot(math.log(level.high / level.mid), math.log(factor.high))))
    return Range(level.mid / width, level.mid, level.mid * width)


def _unexplained(part: Part) -> Range:
    """What the fit misses on runs it did not see, as the 80 % range of a factor."""
    width = math.exp(Z90 * part.unexplained)
    return Range(1 / width, 1.0, width)


def _three(given: Range) -> tuple[float, float, float] | float:
    if given.low == given.high:
        return float(f"{given.mid:.{_DIGITS}g}")
    low, mid, high = (float(f"{value:.{_DIGITS}g}") for value in (given.low, given.mid, given.high))
    return low, mid, high


def file_text(calibration: Calibration) -> str:
    """YAML, keys in the order of the format."""
    import yaml  # noqa: PLC0415 - only a written file needs it

    document = calibration.model_dump(mode="json", exclude_none=True, exclude_defaults=False)
    for entry in document["entries"]:
        entry["shape"] = {k: v for k, v in entry["shape"].items() if v != 1} or {"tp": 1}
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=110)
