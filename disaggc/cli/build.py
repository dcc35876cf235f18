"""`disaggc build`: the files of one target in a directory of their own. The same input gives the same bytes."""

from __future__ import annotations

from dataclasses import replace
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
    Format,
    FormatOption,
    MoreFiles,
    NoInput,
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


Folder = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", parser=out_path, help="Where to write; other files there are kept."),
]
Generation = Annotated[
    int,
    typer.Option(
        "--generation",
        min=1,
        max=1 << 50,
        metavar="N",
        help="Least number of routing files that are new or changed: for builds that do not go into the folder of "
        "the last one.",
    ),
]


def build(
    spec: SpecFiles = None,
    *,
    out: Folder,
    file: MoreFiles = None,
    sets: Sets = None,
    target: TargetOption = None,
    upgrade: Upgrade = False,
    deny: DenyOption = None,
    generation: Generation = 1,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Write the target's files and disaggc.lock. Files of an earlier build that are no longer needed are removed.

    A routing file that changes gets a generation above those in the folder, so that a running proxy takes it over.
    """
    from disaggc.cli.compiling import compiled
    from disaggc.cli.outdir import OutputError, write_tree
    from disaggc.cli.standing import numbered_after
    from disaggc.cli.views.build_human import build_text
    from disaggc.cli.views.build_json import build_document
    from disaggc.compilation import Request
    from disaggc.ir.canonical import fingerprint

    console = Console(color, quiet)
    files = spec_files(spec, file)
    request = Request(files, tuple(sets or ()), target.value if target else None, files_wanted=True)
    done = compiled(request, console.bar(), upgrade=upgrade)
    if output is Format.HUMAN:
        console.report(done.report)
    code = exit_for(done.report.diagnostics, deny_warnings=deny is Deny.WARNINGS)
    if code is not Exit.DONE or done.plan is None or done.artifacts is None:
        if output is Format.JSON:
            console.result(build_document(done, out, None).text())
        return code
    artifacts = numbered_after(out, done.artifacts, least=generation)
    try:
        written = write_tree(out, artifacts, fingerprint=fingerprint(done.plan))
    except OutputError as problem:
        console.fail(str(problem))
        return Exit.ERRORS
    _remember(files[0], done, console)
    document = build_document(replace(done, artifacts=artifacts), out, written)
    console.result(document.text() if output is Format.JSON else build_text(artifacts, written, out))
    return Exit.DONE


def _remember(spec: Path, done: Compiled, console: Console) -> None:
    """The lock and the record of this build, beside the spec; a read-only checkout only loses them."""
    from disaggc.cli.history import record_build, write_lock

    if done.plan is None or done.target is None:
        return
    problems = (
        write_lock(spec, done.lock_text),
        record_build(spec, done.target, plan=done.plan, fields=done.fields),
    )
    for problem in problems:
        if problem is not None:
            console.say(f"note: not recorded: {problem}")
