"""`disaggc simulate`: layouts of a spec under its traffic, a bench run or a trace, request by request."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import exit_for
from disaggc.cli.options import (
    Color,
    ColorOption,
    Format,
    FormatOption,
    MoreFiles,
    NoInput,
    Quiet,
    Sets,
    SpecFiles,
    spec_files,
)

if TYPE_CHECKING:
    from disaggc.cli.loads import Bench, Fault, Sweep
    from disaggc.cli.simulating import Wish
    from disaggc.perf.events import Ramp

_MODES = "plan, colocated or a ratio such as 2P3D (repeatable). Default: plan."

_Trace = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE", help="Replay recorded requests, CSV or JSON lines.")
]
_BenchText = Annotated[
    str | None,
    typer.Option("--bench", metavar="ISL/OSL/CON/RATE", help="One `vllm bench serve` run, e.g. 1k/8k/480/2."),
]
_Burstiness = Annotated[
    float, typer.Option("--burstiness", min=0.01, max=100, help="Of the bench's arrivals; 1 is Poisson.")
]
_Jitter = Annotated[
    float,
    typer.Option(
        "--jitter", min=0.01, max=1, help="Lengths of the bench lie evenly between this share and the whole."
    ),
]
_RampText = Annotated[
    str | None,
    typer.Option(
        "--ramp",
        metavar="START:END",
        help="Requests/s of the bench from its start to its end (`:exponential`).",
    ),
]
_ModeTexts = Annotated[list[str] | None, typer.Option("--mode", metavar="MODE", help=_MODES)]
_SweepText = Annotated[
    str | None, typer.Option("--sweep", metavar="WHAT", help="ratio, concurrency=32,64,128 or rate=1,2,4.")
]
_Service = Annotated[str | None, typer.Option("--service", metavar="NAME", help="One service of several.")]
_Requests = Annotated[
    int | None, typer.Option("--requests", min=1, max=5_000_000, help="How many; default: enough to settle.")
]
_Ranged = Annotated[
    bool, typer.Option("--range", help="Also at the cautious and hopeful ends of the step times.")
]
_Admission = Annotated[
    bool,
    typer.Option(
        "--admission/--no-admission", help="The proxy's limits, or everything straight to the engines."
    ),
]
_Fails = Annotated[
    list[str] | None,
    typer.Option("--fail", metavar="REPLICA@TIME+DOWN", help="E.g. decode/0@10min+2min (repeatable)."),
]
_Seed = Annotated[int, typer.Option("--seed", help="Of arrivals and lengths.")]


def simulate(
    spec: SpecFiles = None,
    *,
    file: MoreFiles = None,
    sets: Sets = None,
    trace: _Trace = None,
    bench: _BenchText = None,
    burstiness: _Burstiness = 1.0,
    jitter: _Jitter = 1.0,
    ramp: _RampText = None,
    mode: _ModeTexts = None,
    sweep: _SweepText = None,
    service: _Service = None,
    requests: _Requests = None,
    ranged: _Ranged = False,
    admission: _Admission = True,
    fail: _Fails = None,
    seed: _Seed = 1,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Simulate the plan, other ratios or colocated serving under the spec's traffic, a bench run or a trace."""
    varied = _sweep(sweep)
    _agree(trace, bench, mode, sweep=varied)
    run = _bench(bench)
    if run is None and (ramp is not None or jitter < 1 or burstiness != 1):
        raise typer.BadParameter("`--ramp`, `--jitter` and `--burstiness` are of a `--bench` run")
    if run is not None:
        run = replace(run, burstiness=burstiness, jitter=jitter, ramp=_ramp(ramp))
        _ramped(run, varied)
    from disaggc.cli.simulating import Wish

    wish = Wish(
        files=spec_files(spec, file),
        sets=tuple(sets or ()),
        trace=trace,
        bench=run,
        modes=tuple(dict.fromkeys(_mode(text) for text in mode or ("plan",))),
        sweep=varied,
        service=service,
        requests=requests,
        ranged=ranged,
        seed=seed,
        admission=admission,
        faults=_faults(fail or []),
    )
    return _shown(wish, Console(color, quiet), output)


def _agree(trace: Path | None, bench: str | None, mode: list[str] | None, *, sweep: Sweep | None) -> None:
    """Options that exclude each other are wrong usage."""
    if trace is not None and bench is not None:
        raise typer.BadParameter("`--trace` and `--bench` exclude each other")
    if sweep is not None and sweep.of == "ratio" and mode:
        raise typer.BadParameter("`--sweep ratio` chooses the modes itself; leave `--mode` out")
    if sweep is not None and sweep.of != "ratio" and trace is not None:
        raise typer.BadParameter(
            f"a trace has its own arrivals; `--sweep {sweep.of}` needs `--bench` or the spec"
        )


def _shown(wish: Wish, console: Console, output: Format) -> int:
    from disaggc.cli.simulating import simulated

    bar = console.bar()
    try:
        runs, report = simulated(wish, bar)
    finally:
        bar.clear()
    if output is Format.JSON:
        from disaggc.cli.views.simulate_json import simulate_document

        console.result(simulate_document(runs, report).text())
    else:
        console.report(report)
        if runs:
            from disaggc.cli.views.simulate_human import simulate_text
            from disaggc.cli.views.text import Paint

            console.result(simulate_text(runs, paint=Paint(console.colored(sys.stdout))))
    return exit_for(report.diagnostics, deny_warnings=False)


def _bench(text: str | None) -> Bench | None:
    from disaggc.cli.loads import parse_bench

    try:
        return None if text is None else parse_bench(text)
    except ValueError as problem:
        raise typer.BadParameter(f"`--bench {text[:40] if text else ''}`: {problem}") from None


def _ramp(text: str | None) -> Ramp | None:
    from disaggc.cli.loads import parse_ramp

    try:
        return None if text is None else parse_ramp(text)
    except ValueError as problem:
        raise typer.BadParameter(f"`--ramp {text[:40] if text else ''}`: {problem}") from None


def _ramped(run: Bench, sweep: Sweep | None) -> None:
    """A ramp is the rate."""
    if run.ramp is not None and (math.isfinite(run.rate) or (sweep is not None and sweep.of == "rate")):
        raise typer.BadParameter(
            "`--ramp` stands for the rate; leave RATE of `--bench` and `--sweep rate` out"
        )


def _sweep(text: str | None) -> Sweep | None:
    from disaggc.cli.loads import parse_sweep

    try:
        return None if text is None else parse_sweep(text)
    except ValueError as problem:
        raise typer.BadParameter(f"`--sweep {text[:40] if text else ''}`: {problem}") from None


def _fault(text: str) -> Fault:
    from disaggc.cli.loads import parse_fault

    try:
        return parse_fault(text)
    except ValueError as problem:
        raise typer.BadParameter(f"`--fail {text[:40]}`: {problem}") from None


def _faults(texts: list[str]) -> tuple[Fault, ...]:
    """What is down already cannot fail."""
    found = tuple(_fault(text) for text in texts)
    ordered = sorted(found, key=lambda fault: (str(fault), fault.at_s))
    for first, second in pairwise(ordered):
        if str(first) == str(second) and second.at_s < first.at_s + first.down_s:
            raise typer.BadParameter(f"`--fail {second}`: one begins while another has it down already")
    return found


def _mode(text: str) -> str:
    from disaggc.cli.modes import RATIO

    if RATIO.fullmatch(text):
        return text.upper()
    if text in ("plan", "colocated"):
        return text
    raise typer.BadParameter(f"`--mode {text[:40]}`: plan, colocated or a ratio such as 2P3D is wanted")
