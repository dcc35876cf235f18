"""`disaggc plan`: what would run where, what it would do, and what would change. Writes nothing but --out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit, exit_for
from disaggc.cli.options import (
    Color,
    ColorOption,
    Deny,
    DenyOption,
    MoreFiles,
    NoInput,
    PlanFormat,
    Quiet,
    Sets,
    SpecFiles,
    TargetOption,
    Upgrade,
    out_path,
    spec_files,
)

if TYPE_CHECKING:
    from disaggc.compilation import Compiled


def plan(
    spec: SpecFiles = None,
    *,
    file: MoreFiles = None,
    sets: Sets = None,
    target: TargetOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", parser=out_path, help="Save the plan to this file."),
    ] = None,
    refresh: Annotated[
        bool | None,
        typer.Option(
            "--refresh/--no-refresh", help="Look at what runs now; --refresh=false needs no cluster."
        ),
    ] = None,
    upgrade: Upgrade = False,
    detailed_exitcode: Annotated[
        bool,
        typer.Option("--detailed-exitcode", help="Exit 2 when there are changes, 0 when there are none."),
    ] = False,
    deny: DenyOption = None,
    output: Annotated[PlanFormat, typer.Option("--format", help="How to print the plan.")] = PlanFormat.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Solve a spec: ratio, shapes, places, predictions with their range, and what changes against the last build."""
    from disaggc.cli.compiling import compiled
    from disaggc.compilation import Request

    console = Console(color, quiet)
    if refresh:
        console.say("note: compares with what was built last; this version does not look at what runs")
    files = spec_files(spec, file)
    request = Request(files, tuple(sets or ()), target.value if target else None)
    done = compiled(request, console.bar(), upgrade=upgrade)
    if output is not PlanFormat.JSON:
        console.report(done.report)
    code = exit_for(done.report.diagnostics, deny_warnings=deny is Deny.WARNINGS)
    if done.plan is not None and out is not None and code is Exit.DONE:
        problem = _save(done, out)
        if problem is not None:
            console.fail(problem)
            return Exit.ERRORS
    text = _rendered(done, output, console=console)
    if text:
        console.result(text)
    return Exit.CHANGES_PENDING if detailed_exitcode and code is Exit.DONE and done.changes else code


def _save(done: Compiled, out: Path) -> str | None:
    from disaggc.cli.history import write_atomically
    from disaggc.ir.canonical import saved_plan_text

    if done.plan is None:
        return None
    try:
        write_atomically(out, saved_plan_text(done.plan, done.target))
    except OSError as problem:
        return f"`{out}`: {problem.strerror}"
    return None


def _rendered(done: Compiled, output: PlanFormat, *, console: Console) -> str:
    import sys

    match output:
        case PlanFormat.JSON:
            from disaggc.cli.views.plan_json import plan_document

            return plan_document(done).text()
        case PlanFormat.MARKDOWN:
            from disaggc.cli.views.plan_markdown import plan_markdown

            return plan_markdown(done.plan, done.changes) if done.plan is not None else ""
        case PlanFormat.HUMAN:
            from disaggc.cli.views.plan_human import plan_text
            from disaggc.cli.views.text import Paint

            paint = Paint(console.colored(sys.stdout))
            return plan_text(done.plan, done.changes, paint=paint) if done.plan is not None else ""
