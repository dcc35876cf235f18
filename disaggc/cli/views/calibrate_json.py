"""`disaggc.calibrate/v1`: what `disaggc calibrate --format json` prints."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document, Item
from disaggc.perf.calibration.advice import Advice
from disaggc.perf.calibration.calibrate import Calibrated
from disaggc.perf.calibration.parts import Part


class ConstantItem(Item):
    """One fitted constant with its 80 % range, seconds per unit of its row."""

    name: str
    low: float
    value: float
    high: float
    pinned_down: bool
    """Whether these runs determine it."""


class PartItem(Item):
    """One fit."""

    title: str
    runs: tuple[str, ...]
    error: float
    """Mean absolute relative error on these runs."""
    left_out_error: float | None
    """The same with each run left out in turn; null where there are too few."""
    constants: tuple[ConstantItem, ...]
    condition: float | None
    """Largest over smallest singular value of its rows in relative terms; null for a level, or where infinite."""
    weakest: tuple[str, ...]
    """Constants that these runs see only together."""


class NextRun(Item):
    """The run that would teach most."""

    kind: str
    input_tokens: int
    output_tokens: int
    concurrency: int
    error_before: float | None
    """Expected error over the bench schedule without it; null where its part was not fitted at all."""
    error_after: float | None
    """The same with it."""
    of_spec: bool
    """It stands in what `calibrate --plan` prints for the spec that the runs were made for; false where none says."""


class EngineItem(Item):
    """One (model, accelerator, shape)."""

    model: str
    accelerator: str
    shape: str
    parts: tuple[PartItem, ...]
    single: tuple[ConstantItem, ...]
    """Constants read off beside the fits: kappa, mixed_s."""
    kv_tokens: int | None
    """KV tokens of one engine, where a run says so."""
    next_run: NextRun | None


class DroppedItem(Item):
    """Something left aside."""

    run: str
    what: str
    why: str


class CalibrateDocument(Document):
    """Output of `disaggc calibrate --format json`."""

    schema_: Annotated[Literal["disaggc.calibrate/v1"], Field(alias="schema")] = "disaggc.calibrate/v1"
    runs: int
    engines: tuple[EngineItem, ...]
    dropped: tuple[DroppedItem, ...]


def document(done: Calibrated) -> CalibrateDocument:
    """The report as JSON."""
    engines = []
    for engine in done.engines:
        one = engine.fitted
        engines.append(
            EngineItem(
                model=one.model,
                accelerator=one.accelerator,
                shape=str(one.shape),
                parts=tuple(_part(part) for part in one.fit.parts),
                single=tuple(
                    ConstantItem(name=name, low=r.low, value=r.mid, high=r.high, pinned_down=True)
                    for name, r in one.fit.single.items()
                ),
                kv_tokens=one.kv_tokens,
                next_run=None if engine.next_run is None else _next(engine.next_run, of_spec=engine.of_spec),
            )
        )
    return CalibrateDocument(
        runs=done.runs,
        engines=tuple(engines),
        dropped=tuple(DroppedItem(run=d.name, what=d.what, why=d.why) for d in done.dropped),
    )


def _next(advice: Advice, *, of_spec: bool) -> NextRun:
    run = advice.run
    return NextRun(
        kind=run.kind,
        input_tokens=run.isl,
        output_tokens=run.osl,
        concurrency=run.concurrency,
        error_before=advice.before,
        error_after=advice.after,
        of_spec=of_spec,
    )


def _part(part: Part) -> PartItem:
    geometry = part.geometry()
    return PartItem(
        title=part.title,
        runs=part.runs,
        error=part.error,
        left_out_error=part.left_out_error,
        constants=tuple(
            ConstantItem(name=name, low=r.low, value=r.mid, high=r.high, pinned_down=name not in part.loose)
            for name, r in part.ranges().items()
        ),
        condition=geometry.condition if geometry and math.isfinite(geometry.condition) else None,
        weakest=geometry.weakest if geometry and geometry.blurred else (),
    )
