"""`disaggc calibrate`: fit the model from benchmark results, or print the short runs to make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit, exit_for
from disaggc.cli.options import Color, ColorOption, Format, FormatOption, NoInput, Quiet

if TYPE_CHECKING:
    from disaggc.perf.calibration.calibrate import Calibrated
    from disaggc.perf.calibration.reading import RunKind


def calibrate(
    results: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RESULTS",
            help="JSON of `vllm bench serve`, AIPerf or InferenceX, or `vllm bench sweep` folders.",
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the calibration file here.")
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
    kv_tokens: Annotated[
        int | None, typer.Option("--kv-tokens", min=1, help="KV tokens of one engine, from its log.")
    ] = None,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Fit step times, transfer and memory to benchmark results. Plans pick the file up through `calibration:`."""
    from disaggc.catalog.load import load_catalog
    from disaggc.perf.calibration.calibrate import calibrate as fitted
    from disaggc.perf.calibration.reading import RunKind, Setting

    console = Console(color, quiet)
    if plan is not None:
        return _print_plan(plan, console)
    if not results:
        raise typer.BadParameter("give result files, or a spec with `--plan`")
    if kind is not None and kind not in get_args(RunKind):
        raise typer.BadParameter(f"no kind `{kind}`; there are: {', '.join(get_args(RunKind))}")
    given = Setting(model, accelerator, shape, replicas, _kind(kind), kv_tokens)
    done = fitted(results, given, load_catalog())
    return _deliver(done, console, out, as_json=output is Format.JSON)


def _kind(text: str | None) -> RunKind | None:
    kinds: dict[str | None, RunKind] = {
        "decode": "decode", "prefill": "prefill", "mixed": "mixed", "pd": "pd", "colocated": "colocated"
    }  # fmt: skip
    return kinds.get(text)


def _deliver(done: Calibrated, console: Console, out: Path | None, *, as_json: bool) -> int:
    from disaggc.cli.views.calibrate_human import report
    from disaggc.cli.views.calibrate_json import document
    from disaggc.perf.calibration.written import file_text

    text = None if done.calibration is None else file_text(done.calibration)
    if out is not None and text is not None:
        from disaggc.cli.history import write_atomically

        write_atomically(out, text)
    if as_json:
        console.result(document(done).text())
    else:
        if out is None and text is not None:
            console.result(text)
        console.say(report(done))
    if text is None:
        console.fail("nothing could be fitted")
        return Exit.ERRORS
    if out is not None:
        console.say(f"\nwrote {out}; name it in the spec: `calibration: {out.name}`")
    return Exit.DONE


def _print_plan(spec: Path, console: Console) -> int:
    from disaggc.compilation import Request
    from disaggc.perf.calibration.plan_commands import commands
    from disaggc.pipeline import check

    checked = check(Request((spec,), (), None))
    if checked.resolved is None:
        console.report(checked.report)
        return exit_for(checked.report.diagnostics, deny_warnings=False)
    console.result("\n".join(commands(checked.resolved)))
    return Exit.DONE
