"""`disaggc.bench-plan/v1`: what `disaggc calibrate --plan SPEC --format json` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document, Item
from disaggc.diagnostics.render.json import DiagnosticItem, items
from disaggc.ir.plan import Prediction, Shape
from disaggc.perf.expectation import plan_number

if TYPE_CHECKING:
    from disaggc.diagnostics.render import Report
    from disaggc.perf.calibration.bench_plan import EngineBench


class BenchRunItem(Item):
    """One run."""

    kind: str
    """decode, prefill, mixed or pd."""
    input_tokens: int
    output_tokens: int
    concurrency: int
    requests: int
    """How many are sent."""
    command: str
    """For a shell; the variable ENGINE or PROXY holds the address."""
    result_file: str
    """What it writes."""
    seconds: Prediction
    """How long it takes."""


class EngineBenchItem(Item):
    """The runs of one kind of engine."""

    service: str
    model: str
    accelerator: str
    shape: Shape
    roles: tuple[str, ...]
    """What such engines do in the plan."""
    decode_shape: Shape | None
    """The decode engine of its P/D runs; null where it has none."""
    runs: tuple[BenchRunItem, ...]
    seconds: Prediction
    """All of them, one after the other."""


class BenchPlanDocument(Document):
    """Output of `disaggc calibrate --plan SPEC --format json`."""

    schema_: Annotated[Literal["disaggc.bench-plan/v1"], Field(alias="schema")] = "disaggc.bench-plan/v1"
    """Name and version of this format."""
    engines: tuple[EngineBenchItem, ...]
    """Empty without a plan."""
    diagnostics: tuple[DiagnosticItem, ...]
    """Findings, sorted by position."""


def bench_plan_document(benches: Sequence[EngineBench], report: Report) -> BenchPlanDocument:
    """The schedule as JSON."""
    return BenchPlanDocument(
        engines=tuple(_engine(bench) for bench in benches),
        diagnostics=tuple(DiagnosticItem.model_validate(item) for item in items(report)),
    )


def _engine(bench: EngineBench) -> EngineBenchItem:
    return EngineBenchItem(
        service=bench.service,
        model=bench.bench.model,
        accelerator=bench.accelerator,
        shape=bench.shape,
        roles=tuple(role.value for role in bench.roles),
        decode_shape=bench.decode,
        runs=tuple(
            BenchRunItem(
                kind=timed.run.kind,
                input_tokens=timed.run.isl,
                output_tokens=timed.run.osl,
                concurrency=timed.run.concurrency,
                requests=timed.run.prompts,
                command=timed.command,
                result_file=timed.result_file,
                seconds=plan_number(timed.time),
            )
            for timed in bench.runs
        ),
        seconds=plan_number(bench.time),
    )
