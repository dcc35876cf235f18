"""`disaggc init`: a spec to start from. Asks nothing and overwrites nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit
from disaggc.cli.options import Color, ColorOption, Format, FormatOption, NoInput, Quiet
from disaggc.resources import shipped

STARTER = "starter"


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to write; made if it is missing.")
    ] = Path(),
    example: Annotated[
        str, typer.Option("--example", metavar="NAME", help="Start from this example instead.")
    ] = STARTER,
    output: FormatOption = Format.HUMAN,
    *,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Write a commented starter spec, or a copy of an example."""
    console = Console(color, quiet)
    source = shipped("examples") / example
    names = sorted(path.name for path in shipped("examples").iterdir() if (path / "disaggc.yaml").is_file())
    if example not in names:
        raise typer.BadParameter(f"no example `{example}`; there are: {', '.join(names)}")
    texts = {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(source.iterdir())
        if _copied(path, directory)
    }
    written = _write(directory, texts)
    if isinstance(written, str):
        console.fail(written)
        return Exit.ERRORS
    console.result(_listing(written, output))
    console.say(f"next: disaggc validate {directory / 'disaggc.yaml'}")
    return Exit.DONE


def _copied(path: Path, directory: Path) -> bool:
    """Not a lock, which belongs to whoever built there; a README only where the directory has none of its own."""
    taken = path.name == "README.md" and (directory / path.name).exists()
    return path.is_file() and path.suffix != ".lock" and not taken


def _write(directory: Path, texts: dict[str, str]) -> tuple[str, ...] | str:
    """The paths written, or why nothing was."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        taken = [name for name in texts if (directory / name).exists()]
        if taken:
            return f"`{directory / taken[0]}` exists; nothing was written"
        for name, text in texts.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as problem:
        return f"`{problem.filename or directory}`: {problem.strerror}"
    return tuple(str(directory / name) for name in texts)


def _listing(written: tuple[str, ...], output: Format) -> str:
    if output is Format.HUMAN:
        return "\n".join(written)
    from disaggc.cli.views.init_json import InitDocument

    return InitDocument(written=written).text()
