"""Constants of one replica from all that is known of it: priors or tables, other shapes that were measured, itself.

Decides what stands in place of what; knows no arithmetic of levels and no format.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from disaggc.ir.plan import Shape
from disaggc.perf.calibration_file import Calibration
from disaggc.perf.carried import (
    STATED,
    Beside,
    Part,
    with_engine,
    with_link,
    with_prompts,
    with_steps,
)
from disaggc.perf.constants import Constants, Range
from disaggc.perf.engine_model import EngineModel
from disaggc.perf.estimate import Basis
from disaggc.perf.transfer import kv_copies
from disaggc.resolve.model import ResolvedService


@dataclass(frozen=True, slots=True)
class Replica:
    """What is asked about. own, other: its engine, and that of another shape, as they are without the file."""

    service: ResolvedService
    accelerator: str
    shape: Shape
    own: EngineModel
    other: Callable[[Shape], EngineModel | None]


def constants_with(calibration: Calibration, replica: Replica) -> Constants:
    """The plain constants, then what other shapes say, then what the file states of this one."""
    model, accelerator = replica.service.model.id, replica.accelerator
    carried = _Carrying(calibration, replica).constants()
    return calibration.applied(carried, model, accelerator, shape=replica.shape)


class _Carrying:
    def __init__(self, calibration: Calibration, replica: Replica) -> None:
        self._calibration, self._replica = calibration, replica
        self._named = (replica.service.model.id, replica.accelerator)
        self._stated = calibration.states(*self._named, shape=replica.shape)
        others = [shape for shape in calibration.shapes(*self._named) if shape != replica.shape]
        self._others = sorted(others, key=self._far)

    def _far(self, shape: Shape) -> tuple[float, str]:
        return abs(math.log(shape.accelerators / self._replica.shape.accelerators)), str(shape)

    def constants(self) -> Constants:
        """With every part that the file does not state of this shape, from the nearest shape of which it does."""
        own = self._replica.own
        found, sources = own.constants, list[str]()
        if (near := self._measured("prompt")) is not None:
            found = with_prompts(own, near[1])
            sources.append(str(near[0]))
        direct = found.prefill_per_token_s is not None or "prefill_per_token_s" in self._stated
        if (near := self._measured("decode")) is not None:
            own = EngineModel(own.work, found, own.table)
            found = with_steps(own, near[1], shared=direct and own.table is None)
            sources.append(str(near[0]))
        if (near := self._measured("link")) is not None:
            own = EngineModel(own.work, found, own.table)
            found = with_link(own, near[1], self._line(self._replica.shape) / self._line(near[0]))
        if self._others:
            found = with_engine(found, self._of_engine())
        if not sources:
            return found
        shapes = tuple(dict.fromkeys(sources))
        return replace(
            found, basis=Basis.CARRIED, source=f"carried from {', '.join(shapes)}", carried_from=shapes
        )

    def _measured(self, part: Part) -> tuple[Shape, Beside] | None:
        """The nearest shape whose part was measured; None where this one's own was, or none's."""
        if STATED[part] & self._stated.keys():
            return None
        for shape in self._others:
            if STATED[part] & self._calibration.states(*self._named, shape=shape).keys():
                plain = self._replica.other(shape)
                return None if plain is None else (shape, Beside(self._seen(plain, shape), plain))
        return None

    def _seen(self, plain: EngineModel, shape: Shape) -> EngineModel:
        constants = self._calibration.applied(plain.constants, *self._named, shape=shape)
        return EngineModel(plain.work, constants)

    def _line(self, shape: Shape) -> float:
        """What the cards of one data-parallel rank move, each byte as often as it has to."""
        return shape.tp * shape.pp / kv_copies(self._replica.service, shape)

    def _of_engine(self) -> dict[str, Range]:
        """What the nearest shapes say of the engine, this one's own aside."""
        found: dict[str, Range] = {}
        for shape in reversed(self._others):
            found |= self._calibration.states(*self._named, shape=shape)
        return {name: given for name, given in found.items() if name not in self._stated}
