"""The entry point: registers the verbs and turns whatever happens into an exit code. Knows what no verb does inside."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

from disaggc import __version__
from disaggc.cli import (
    build,
    calibrate,
    catalog,
    explain,
    init,
    local,
    plan,
    proxy,
    schema,
    sim_engine,
    simulate,
    smoke,
    validate,
)
from disaggc.cli.exits import Exit
from disaggc.proxy.compiled import is_compiled

UsageError: type[BaseException] = typer.BadParameter.__bases__[0]
"""Typer's own class for wrong usage; it exports only this child of it."""

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""What writing to standard output fails with when the disk or the terminal behind it is at fault."""

app = typer.Typer(
    name="disaggc",
    help="Compile a GPU cluster and its traffic into a prefill/decode-disaggregated vLLM deployment.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("init", short_help="Write a commented starter spec.")(init.init)
app.command("validate", short_help="Check a spec without solving it.")(validate.validate)
app.command("plan", short_help="Solve: ratio, shapes, places, predictions, changes.")(plan.plan)
app.command("build", short_help="Write the target's files.")(build.build)
app.command("calibrate", short_help="Fit predictions to benchmark results.")(calibrate.calibrate)
app.command("explain", short_help="Why this plan, or what a code means.")(explain.explain)
app.command("simulate", short_help="Run layouts request by request in a simulator.")(simulate.simulate)
app.command("proxy", short_help="Run the data plane of one service.")(proxy.proxy)
app.command(
    "sim-engine",
    short_help="Run an engine double instead of vLLM.",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)(sim_engine.sim_engine)
app.command("schema", short_help="Print a JSON Schema.")(schema.schema)
app.command("smoke", short_help="Prove on a running deployment that KV moves.")(smoke.smoke)
app.add_typer(local.app, name="local", short_help="Run the processes of a plan on this machine.")
app.add_typer(catalog.app, name="catalog", short_help="List the facts that plans rest on.")


def _print_version(wanted: bool) -> None:
    if wanted:
        kind = "compiled" if is_compiled() else "interpreted"
        sys.stdout.write(f"disaggc {__version__}\nproxy: {kind}\n")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version, and whether the proxy is compiled.",
        ),
    ] = False,
) -> None:
    pass


def main(arguments: list[str]) -> int:
    """Run one command line; the exit code. Nothing escapes as a traceback."""
    try:
        code = app(args=_spelled_out(arguments), prog_name="disaggc", standalone_mode=False)
        sys.stdout.flush()
    except UsageError as problem:
        sys.stderr.write(_usage_text(problem))
        return Exit.USAGE
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("interrupted\n")
        return Exit.INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # The reader went away (the parser turns that, and nothing else, into SystemExit): point stdout elsewhere, so
        # that the interpreter's last flush stays quiet too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.DONE
    except Exception as bug:  # noqa: BLE001 - the last line of defence: a bug becomes a report and exit 70
        return _failed(bug, arguments)
    return code if isinstance(code, int) else Exit.DONE


def _failed(bug: Exception, arguments: list[str]) -> int:
    if isinstance(bug, OSError) and bug.filename is None and bug.errno in _UNWRITABLE:
        sys.stderr.write(f"error: standard output: {bug.strerror}\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return Exit.ERRORS
    from disaggc.cli.crash import broken_installation, report_crash

    if (fault := broken_installation(bug)) is not None:
        sys.stderr.write(fault)
        return Exit.ERRORS
    sys.stderr.write(report_crash(bug, arguments))
    return Exit.BUG


def _spelled_out(arguments: list[str]) -> list[str]:
    """`--refresh=false` as `--no-refresh`; the pair is one flag for the parser."""
    spelled = {"--refresh=false": "--no-refresh", "--refresh=true": "--refresh"}
    return [spelled.get(argument, argument) for argument in arguments]


def _usage_text(problem: BaseException) -> str:
    context = getattr(problem, "ctx", None)
    message = getattr(problem, "format_message", lambda: str(problem))()
    path = context.command_path if context is not None else "disaggc"
    if not message:
        return f"error: `{path}` wants a command; see `{path} --help`\n"
    # The parser lets the wording of the library that checks values through.
    message = message.replace("Value error, ", "")
    return f"error: {message[0].lower()}{message[1:]}\nsee `{path} --help`\n"
