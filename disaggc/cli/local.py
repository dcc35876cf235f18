"""`disaggc local`: run a plan's processes on this machine, from the folder `build --target local` wrote."""

from __future__ import annotations

import os
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit
from disaggc.cli.options import Color, ColorOption, Format, FormatOption, NoInput, Quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from disaggc.cli.local_routing import RoutingState
    from disaggc.cli.local_stack import ProgramStatus
    from disaggc.hosts.supervision import Supervision
    from disaggc.ir.stack import StackProgram

app = typer.Typer(
    help="Run the processes of a plan on this machine: `build --target local --out DIR`, then `local up DIR`. With "
    "`--set targets.local.engine=sim` at the build they are engine doubles, which need no vLLM and no accelerator.",
    no_args_is_help=False,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `build --target local` wrote.")]


@app.command("up")
def up(
    folder: Folder,
    *,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return once every process serves.")] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait.")
    ] = 900.0,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and bring everything down on Ctrl-C.")
    ] = False,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Start everything that does not run yet, take over what was built anew, and wait until it serves."""
    from disaggc.cli.local_end import NotDownError, held
    from disaggc.cli.local_routing import acknowledged, routing_states
    from disaggc.cli.local_stack import StackProblemError, bring_up, read_stack, status, wait_ready
    from disaggc.hosts.supervision import Supervision, SupervisionError

    console = Console(color, quiet)
    supervision = Supervision(folder.resolve())
    try:
        stack = read_stack(folder)
        with held(supervision, console.say) if foreground else nullcontext() as hold:
            console.say(bring_up(supervision, stack, os.environ))
            if wait or foreground:
                why_not = _hopeless(folder, console, stays=foreground)
                wait_ready(supervision, stack, timeout_s=timeout, said=console.say, hopeless=why_not)
            if hold is not None:
                hold.served = True
            routing = acknowledged(folder, stack) if wait or foreground else routing_states(folder, stack)
            _show(status(supervision, stack), routing, folder, output=output, console=console)
            if (wait or foreground) and not _in_effect(routing, console):
                return Exit.ERRORS
            if foreground:
                return _stay(supervision, console)
    except (StackProblemError, SupervisionError, NotDownError) as problem:
        for line in str(problem).splitlines():
            console.fail(line) if not line.startswith(("  |", "the end")) else console.say(line)
        return Exit.ERRORS
    except KeyboardInterrupt:
        if not foreground:
            console.say(_left_running(folder, running=supervision.running()))
        return Exit.INTERRUPTED
    return Exit.DONE


@app.command("down")
def down(
    folder: Folder,
    *,
    now: Annotated[bool, typer.Option("--now", help="Cut running requests off.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long to wait for the end.")
    ] = 600.0,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Stop everything: requests that run are finished first. Nothing to stop is fine."""
    from disaggc.cli.local_end import NotDownError, bring_down
    from disaggc.cli.local_stack import StackProblemError, read_stack
    from disaggc.hosts.supervision import Supervision, SupervisionError

    console = Console(color, quiet)
    try:
        ran = bring_down(Supervision(folder.resolve()), at_once=now, timeout_s=timeout, said=console.say)
        if not ran:
            read_stack(folder)  # a folder that is not there, or another one, is no stack that is down
    except (NotDownError, SupervisionError, StackProblemError) as problem:
        console.fail(str(problem))
        return Exit.ERRORS
    console.say("down" if ran else "nothing was up")
    return Exit.DONE


@app.command("status")
def status_of(
    folder: Folder,
    *,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """How every process is, and which routing is in effect. Exit code 6 unless all serve, by the files of DIR."""
    from disaggc.cli.local_routing import routing_states
    from disaggc.cli.local_stack import StackProblemError, read_stack, status
    from disaggc.hosts.supervision import Supervision, SupervisionError

    console = Console(color, quiet)
    try:
        supervision, stack = Supervision(folder.resolve()), read_stack(folder)
        found = status(supervision, stack)
        routing = routing_states(folder, stack) if supervision.running() else ()
    except (StackProblemError, SupervisionError) as problem:
        console.fail(str(problem))
        return Exit.ERRORS
    _show(found, routing, folder, output=output, console=console)
    return (
        Exit.DONE
        if all(one.ready for one in found) and all(one.good for one in routing)
        else Exit.CHECK_FAILED
    )


def _stay(supervision: Supervision, console: Console) -> int:
    """Until Ctrl-C, which is how this ends well; the caller brings everything down."""
    try:
        console.say("up; Ctrl-C stops everything, once more cuts off what runs")
        while supervision.running():
            time.sleep(1)
    except KeyboardInterrupt:
        return Exit.DONE
    console.fail("supervisord ended; see its log in run/")
    return Exit.ERRORS


def _hopeless(folder: Path, console: Console, *, stays: bool) -> Callable[[StackProgram], str | None]:
    """Why a proxy will never serve.

    In the foreground an error would end the very proxy that has to be told: there it is said once, and waited for.
    """
    from disaggc.cli.local_routing import closed

    told: set[str] = set()

    def said(program: StackProgram) -> None:
        why = closed(folder, program)
        if why is not None and why not in told:
            told.add(why)
            console.say(why)

    return said if stays else partial(closed, folder)


def _left_running(folder: Path, *, running: bool) -> str:
    if not running:
        return "interrupted, nothing runs"
    return f"interrupted; it goes on starting, `disaggc local down {folder}` stops it"


def _in_effect(routing: Sequence[RoutingState], console: Console) -> bool:
    for one in routing:
        if not one.good:
            console.fail(one.sentence)
    return all(one.good for one in routing)


def _show(
    found: Sequence[ProgramStatus],
    routing: Sequence[RoutingState],
    folder: Path,
    *,
    output: Format,
    console: Console,
) -> None:
    if output is Format.JSON:
        from disaggc.cli.views.local_json import local_document

        console.result(local_document(found, routing, folder).text())
        return
    from disaggc.cli.views.local_human import local_text

    console.result(local_text(found, routing))
