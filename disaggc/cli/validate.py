"""`disaggc validate`: everything that can be decided without solving. Never imports the solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import exit_for
from disaggc.cli.options import (
    Color,
    ColorOption,
    Deny,
    DenyOption,
    FindingsFormat,
    MoreFiles,
    NoInput,
    Quiet,
    Sets,
    SpecFiles,
    TargetOption,
    spec_files,
)

if TYPE_CHECKING:
    from disaggc.diagnostics.render import Report


def validate(
    spec: SpecFiles = None,
    *,
    file: MoreFiles = None,
    sets: Sets = None,
    target: TargetOption = None,
    deny: DenyOption = None,
    output: Annotated[FindingsFormat, typer.Option("--format", help="How to print the findings.")] = (
        FindingsFormat.HUMAN
    ),
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Check a spec: shape, names, memory, KV transfer, target. Every finding names file, line and column."""
    from disaggc.compilation import Request
    from disaggc.diagnostics import has_errors
    from disaggc.pipeline import check

    console = Console(color, quiet)
    checked = check(Request(spec_files(spec, file), tuple(sets or ()), target.value if target else None))
    if output is FindingsFormat.HUMAN:
        console.report(checked.report)
        if checked.resolved is not None and not has_errors(checked.report.diagnostics):
            from disaggc.cli.views.validate_human import summary

            console.result(summary(checked.resolved))
    else:
        console.result(_rendered(checked.report, output))
    return exit_for(checked.report.diagnostics, deny_warnings=deny is Deny.WARNINGS)


def _rendered(report: Report, output: FindingsFormat) -> str:
    match output:
        case FindingsFormat.JSON:
            from disaggc.diagnostics.render.json import json as render
        case FindingsFormat.SARIF:
            from disaggc.diagnostics.render.sarif import sarif as render
        case FindingsFormat.GITHUB:
            from disaggc.diagnostics.render.github import github as render
        case FindingsFormat.JUNIT | FindingsFormat.HUMAN:
            from disaggc.diagnostics.render.junit import junit as render
    return render(report)
