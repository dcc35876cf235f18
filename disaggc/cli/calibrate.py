"""`disaggc calibrate`: fit the model from benchmark results, or print the short runs to make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit, exit_for
from disaggc.cli.options import Color, ColorOption, Format, FormatOption, NoInput, Quiet, out_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disaggc.catalog.load import Catalog
    from disaggc.perf.calibration.calibrate import Calibrated
    from disaggc.perf.calibration.reading import RunKind, Setting


_KvTokens = Annotated[
    int | None,
    typer.Option("--kv-tokens", min=1, max=10**10, help="KV tokens of one engine, from its log."),
]


def calibrate(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS",
            parser=out_path,
            help="JSON of `vllm bench serve`, AIPerf or InferenceX, or `vllm bench sweep` folders.",
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", parser=out_path, help="Write the calibration file here."),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", metavar="SPEC", help="Print the bench runs this spec needs instead."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model id, where the results do not carry the spec's.")
    ] = None,
    accelerator: Annotated[str | None, typer.Option(help="Accelerator, e.g. mi300x.")] = None,
    shape: Annotated[str | None, typer.Option(help="Shape of one engine, e.g. tp8 or 'dp8 ep8'.")] = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Decode or colocated replicas behind the endpoint.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="What the runs are: decode, prefill, mixed, pd or colocated.")
    ] = None,
    kv_tokens: _KvTokens = None,
    kv_dtype: Annotated[str | None, typer.Option(help="Their `--kv-cache-dtype`, e.g. fp8.")] = None,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Fit step times, transfer and memory to benchmark results. Plans pick the file up through `calibration:`."""
    from disaggc.perf.calibration.reading import Setting

    console, as_json = Console(color, quiet), output is Format.JSON
    given = Setting(model, accelerator, shape, replicas, _kind(kind), kv_tokens, kv_dtype)
    if plan is None:
        return _fit(results or (), given, console, out=out, as_json=as_json)
    if results or out is not None or given != Setting():
        raise typer.BadParameter(
            "`--plan SPEC` prints runs to make: it takes no results and none of their options"
        )
    return _print_plan(plan, console, as_json=as_json)


def _fit(
    results: Sequence[Path], given: Setting, console: Console, *, out: Path | None, as_json: bool
) -> int:
    from disaggc.catalog.load import load_catalog
    from disaggc.perf.calibration.calibrate import calibrate as fitted

    if not results:
        raise typer.BadParameter("give result files, or a spec with `--plan`")
    if "" in (given.model, given.accelerator, given.shape):
        raise typer.BadParameter("`--model`, `--accelerator` or `--shape` is empty")
    catalog = load_catalog()
    _understood(given, catalog)
    return _deliver(fitted(results, given, catalog), console, out, as_json=as_json)


def _kind(text: str | None) -> RunKind | None:
    from disaggc.perf.calibration.reading import RunKind

    kinds: tuple[RunKind, ...] = get_args(RunKind)
    found = next((kind for kind in kinds if kind == text), None)
    if text is not None and found is None:
        raise typer.BadParameter(f"no kind `{text}`; there are: {', '.join(kinds)}")
    return found


def _understood(given: Setting, catalog: Catalog) -> None:
    """What the command line says of the runs must mean something: it stands above what they say themselves."""
    from disaggc.perf.calibration.calibrate import shape_from

    if given.shape is not None and shape_from(given.shape) is None:
        raise typer.BadParameter(f"`{given.shape}` is no shape; write e.g. tp8, 'tp4 dp2' or 'dp8 ep8'")
    if given.accelerator is not None and catalog.accelerator(given.accelerator.lower()) is None:
        known = ", ".join(catalog.accelerator_ids)
        raise typer.BadParameter(f"no accelerator `{given.accelerator}`; there are: {known}")


def _deliver(done: Calibrated, console: Console, out: Path | None, *, as_json: bool) -> int:
    from disaggc.cli.views.calibrate_human import report
    from disaggc.cli.views.calibrate_json import document
    from disaggc.perf.calibration.written import file_text

    text = None if done.calibration is None else file_text(done.calibration)
    problem = None if out is None or text is None else _written(out, text)
    if as_json:
        console.result(document(done).text())
    else:
        if text is not None and (out is None or problem is not None):
            console.result(text)  # a fit is not lost with the file it should have gone to
        console.say(report(done))
    if text is None:
        console.fail("nothing could be fitted")
    if problem is not None:
        console.fail(problem)
    if text is None or problem is not None:
        return Exit.ERRORS
    if out is not None:
        console.say(f"\nwrote {out}; name it in the spec: `calibration: {out.name}`")
    return Exit.DONE


def _written(out: Path, text: str) -> str | None:
    """Why it could not be."""
    from disaggc.cli.history import write_atomically

    try:
        write_atomically(out, text)
    except OSError as problem:
        return f"`{out}`: {problem.strerror}"
    return None


def _print_plan(spec: Path, console: Console, *, as_json: bool) -> int:
    """The shapes are those that a plan of the spec has: they are what its predictions rest on."""
    from disaggc.cli.compiling import compiled
    from disaggc.compilation import Request
    from disaggc.perf.calibration.bench_plan import bench_plan
    from disaggc.perf.models import Models
    from disaggc.pipeline import check

    request = Request((spec,))
    done = compiled(request, console.bar(), upgrade=False)
    resolved = check(request).resolved
    models = None if resolved is None else Models.of(resolved).value
    benches = () if done.plan is None or models is None else bench_plan(models, done.plan)
    if as_json:
        from disaggc.cli.views.bench_plan_json import bench_plan_document

        console.result(bench_plan_document(benches, done.report).text())
    else:
        from disaggc.cli.views.bench_plan_human import bench_plan_text

        console.report(done.report)
        if benches:
            console.result(bench_plan_text(benches))
    return exit_for(done.report.diagnostics, deny_warnings=False)
