"""`disaggc.calibrate/v1`: what `disaggc calibrate --format json` prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document, Item
from disaggc.perf.calibration.calibrate import Calibrated
from disaggc.perf.calibration.engine_fit import Part


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


class NextRun(Item):
    """The run that would teach most."""

    kind: str
    input_tokens: int
    output_tokens: int
    concurrency: int


class EngineItem(Item):
    """One (model, accelerator, shape)."""

    model: str
    accelerator: str
    shape: str
    parts: tuple[PartItem, ...]
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
        one, run = engine.fitted, engine.next_run
        engines.append(
            EngineItem(
                model=one.model,
                accelerator=one.accelerator,
                shape=str(one.shape),
                parts=tuple(_part(part) for part in one.fit.parts),
                kv_tokens=one.kv_tokens,
                next_run=None
                if run is None
                else NextRun(
                    kind=run.kind, input_tokens=run.isl, output_tokens=run.osl, concurrency=run.concurrency
                ),
            )
        )
    return CalibrateDocument(
        runs=done.runs,
        engines=tuple(engines),
        dropped=tuple(DroppedItem(run=d.name, what=d.what, why=d.why) for d in done.dropped),
    )


def _part(part: Part) -> PartItem:
    return PartItem(
        title=part.title,
        runs=part.runs,
        error=part.error,
        left_out_error=part.left_out_error,
        constants=tuple(
            ConstantItem(name=name, low=r.low, value=r.mid, high=r.high, pinned_down=name not in part.loose)
            for name, r in part.ranges().items()
        ),
    )
