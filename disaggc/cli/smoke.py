"""`disaggc smoke`: prove on a running deployment that KV really moves, pair by pair."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit, exit_for
from disaggc.cli.options import Color, ColorOption, Format, FormatOption, NoInput, Quiet, Sets, TargetOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disaggc.ir.plan import DeploymentPlan
    from disaggc.rollout.smoke_model import Finding, Subject

LARGEST = 64 << 20
"""Largest saved plan that is read, in bytes."""


def smoke(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN|SPEC", help="What `plan --out` saved, or the spec it came from.")
    ],
    *,
    routing: Annotated[
        list[Path] | None,
        typer.Option("--routing", metavar="FILE", help="Routing file of a service: where its engines are."),
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option("--endpoint", metavar="ADDRESS=URL", help="Where one engine or proxy is (repeatable)."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="Longest wait for one answer.")
    ] = 120.0,
    sets: Sets = None,
    target: TargetOption = None,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Ask every prefill-decode pair, every engine and the proxy; exit code 6 when one of them is not as planned."""
    from disaggc.cli.smoke_subjects import EndpointError, read_endpoints, read_tables, subjects
    from disaggc.rollout.smoke_model import failed

    console = Console(color, quiet)
    loaded = _planned(plan, tuple(sets or ()), target.value if target else None, console=console)
    if isinstance(loaded, Exit):
        return loaded
    try:
        asked = subjects(
            loaded,
            tables=read_tables(routing or ()),
            endpoints=read_endpoints(endpoint or ()),
            environ=os.environ,
            timeout_s=timeout,
        )
    except EndpointError as problem:
        console.fail(str(problem))
        return Exit.ERRORS
    found = _ask(asked, console, live=output is Format.HUMAN)
    console.result(_rendered(loaded, found, output))
    return Exit.CHECK_FAILED if any(map(failed, found)) else Exit.DONE


def _rendered(plan: DeploymentPlan, found: Sequence[Finding], output: Format) -> str:
    if output is Format.JSON:
        from disaggc.cli.views.smoke_json import smoke_document

        return smoke_document(plan, found).text()
    from disaggc.cli.views.smoke_human import summary

    return summary(found)


def _ask(asked: Sequence[Subject], console: Console, *, live: bool) -> tuple[Finding, ...]:
    """All findings; each one is shown as soon as it is there."""
    import asyncio
    import sys

    from disaggc.cli.views.smoke_human import line
    from disaggc.cli.views.text import Paint
    from disaggc.rollout.smoke import smoke as run

    paint = Paint(console.colored(sys.stdout))

    async def all_of_them() -> tuple[Finding, ...]:
        found: list[Finding] = []
        for subject in asked:
            async for finding in run(subject, console.say):
                found.append(finding)
                if live:
                    console.result(line(finding, paint))
        return tuple(found)

    return asyncio.run(all_of_them())


def _planned(
    path: Path, sets: tuple[str, ...], target: str | None, *, console: Console
) -> DeploymentPlan | Exit:
    """The plan of a saved file, or of a spec, which is compiled as its lock says."""
    from disaggc.ir.canonical import UnreadablePlanError, read_saved_plan

    try:
        with path.open("rb") as file:
            start = file.read(LARGEST)
    except OSError as problem:
        console.fail(f"`{path}` cannot be read: {problem.strerror}")
        return Exit.ERRORS
    if start.lstrip().startswith(b"{"):
        try:
            return read_saved_plan(start.decode("utf-8", "replace"))
        except UnreadablePlanError as problem:
            console.fail(f"`{path}`: {problem}")
            return Exit.ERRORS
    from disaggc.cli.compiling import compiled
    from disaggc.compilation import Request

    done = compiled(Request((path,), sets, target), console.bar(), upgrade=False)
    code = exit_for(done.report.diagnostics, deny_warnings=False)
    if done.plan is None or code is not Exit.DONE:
        console.report(done.report)
        return code if code is not Exit.DONE else Exit.ERRORS
    return done.plan
