"""`disaggc validate`: everything that can be decided without solving. Never imports the solver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit, exit_for
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
    from disaggc.compilation import Checked, Request
    from disaggc.diagnostics.render import Report


def validate(
    spec: SpecFiles = None,
    *,
    file: MoreFiles = None,
    sets: Sets = None,
    target: TargetOption = None,
    engine_parser: Annotated[
        bool | None,
        typer.Option(
            "--engine-parser/--no-engine-parser",
            help="Let vLLM's own parser judge the command lines too. Default: where vLLM is installed.",
        ),
    ] = None,
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
    request = Request(spec_files(spec, file), tuple(sets or ()), target.value if target else None)
    checked = check(request)
    report = checked.report
    if engine_parser is not False and checked.resolved is not None and not has_errors(report.diagnostics):
        asked = _second_opinion(request, checked, wanted=engine_parser is True, console=console)
        if asked is None:
            return Exit.ERRORS
        report = asked
    if output is FindingsFormat.HUMAN:
        console.report(report)
        if checked.resolved is not None and not has_errors(report.diagnostics):
            from disaggc.cli.views.validate_human import summary

            console.result(summary(checked.resolved))
    else:
        console.result(_rendered(report, output))
    return exit_for(report.diagnostics, deny_warnings=deny is Deny.WARNINGS)


def _second_opinion(request: Request, checked: Checked, *, wanted: bool, console: Console) -> Report | None:
    """The findings with those of an installed vLLM; None when it was asked for and cannot be had.

    Unbidden, only a vLLM is asked that whoever runs disaggc has chosen, never one at a path that the spec names.
    """
    import os

    from disaggc.hosts.engine_parser import beside, installed

    python = installed(os.environ)
    if python is None and wanted and checked.resolved is not None:
        commands = [service.given.engine.command for service in checked.resolved.services]
        python = next((found for command in commands if command and (found := beside(command))), None)
    if python is None:
        if not wanted:
            return checked.report
        console.fail(
            "there is no vLLM to ask: `pip install 'disaggc[vllm]'`, or set DISAGGC_VLLM_PYTHON to its interpreter"
        )
        return None
    from disaggc.cli.engine_opinion import NoOpinionError, opinion
    from disaggc.compilation import settled

    try:
        return settled(checked, opinion(python, request, os.environ))
    except NoOpinionError as problem:
        console.say(f"note: vLLM was not asked about the command lines: {problem}")
        return checked.report


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
