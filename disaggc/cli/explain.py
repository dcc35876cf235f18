"""`disaggc explain`: why this plan, or the page of one code."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit, exit_for
from disaggc.cli.options import (
    DEFAULT_SPEC,
    Color,
    ColorOption,
    Format,
    FormatOption,
    MoreFiles,
    NoInput,
    Quiet,
    Sets,
    TargetOption,
    Upgrade,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from disaggc.diagnostics.codes import Code

_REQUESTS = "Also say what a run of so many requests would measure, ramp and drain included."
_CODE = re.compile(r"dgc\d+", re.IGNORECASE)
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def explain(
    subject: Annotated[
        list[str] | None,
        typer.Argument(metavar="SPEC|CODE", help="Spec files, or a code such as DGC312 or its name."),
    ] = None,
    *,
    file: MoreFiles = None,
    sets: Sets = None,
    target: TargetOption = None,
    requests: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000_000, help=_REQUESTS),
    ] = None,
    upgrade: Upgrade = False,
    output: FormatOption = Format.HUMAN,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Say why the plan is as it is, or what a code means."""
    console = Console(color, quiet)
    named = list(subject or ())
    if len(named) == 1 and not file and _may_be_code(named[0]):
        return _explain_code(named[0], output, console=console)
    files = (*(Path(name) for name in named), *(file or ())) or (DEFAULT_SPEC,)

    from disaggc.cli.compiling import compiled
    from disaggc.cli.sensitive import sensitive
    from disaggc.compilation import Request

    request = Request(files, tuple(sets or ()), target.value if target else None)
    bar = console.bar()
    done = compiled(request, bar, upgrade=upgrade)
    changes = sensitive(done, request, requests=requests, progress=bar.part("trying other traffic", 0, 1))
    bar.clear()
    if output is Format.HUMAN:
        console.report(done.report)
    if output is Format.JSON:
        from disaggc.cli.views.explain_json import explain_document

        console.result(explain_document(done, changes).text())
    elif done.plan is not None:
        from disaggc.cli.views.explain_human import explain_text
        from disaggc.cli.views.text import Paint

        console.result(explain_text(done.plan, changes, paint=Paint(console.colored(sys.stdout))))
    return exit_for(done.report.diagnostics, deny_warnings=False)


def _may_be_code(text: str) -> bool:
    return bool(_CODE.fullmatch(text)) or (bool(_NAME.fullmatch(text)) and not Path(text).exists())


def _explain_code(text: str, output: Format, *, console: Console) -> int:
    from disaggc.rules.page import known_codes, rule_page

    page = rule_page(text)
    if page is None:
        console.fail(f"`{text}` is neither a file nor a code{_meant(text, known_codes())}")
        return Exit.ERRORS
    if output is Format.JSON:
        from disaggc.cli.views.explain_json import PageDocument

        console.result(PageDocument(code=page.partition(" ")[0], page=page).text())
    else:
        console.result(page)
    return Exit.DONE


def _meant(text: str, codes: Iterable[Code]) -> str:
    """The codes that begin alike, or whose name has a word of it; every code where none does."""
    known = list(codes)
    stem, words = text.upper()[:4], set(text.lower().split("-"))
    near = [code for code in known if code.id[:4] == stem or words & set(code.name.split("-"))]
    return "; there are:" + "".join(f"\n  {code.id} {code.name}" for code in near or known)
