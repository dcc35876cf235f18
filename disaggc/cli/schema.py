"""`disaggc schema`: the JSON Schemas that ship with disaggc, for editors and for readers of its JSON."""

from __future__ import annotations

from typing import Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit
from disaggc.cli.options import Color, ColorOption, Format, FormatOption, NoInput, Quiet
from disaggc.resources import shipped


def schema(
    name: Annotated[
        str | None, typer.Argument(help="Print this schema, e.g. `spec`; without it the names.")
    ] = None,
    output: FormatOption = Format.HUMAN,
    *,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """Print a JSON Schema: of the spec (for your editor), or of an output."""
    console = Console(color, quiet)
    files = {path.name.partition(".")[0]: path for path in sorted(shipped("schemas").glob("*.v*.json"))}
    if name is None:
        console.result(_listing(tuple(files), output))
        return Exit.DONE
    if name not in files:
        known = ", ".join(files)
        raise typer.BadParameter(f"no schema `{name}`; there are: {known}")
    console.result(files[name].read_text(encoding="utf-8"))
    return Exit.DONE


def _listing(names: tuple[str, ...], output: Format) -> str:
    if output is Format.HUMAN:
        return "\n".join(names)
    from disaggc.cli.views.schema_json import SchemasDocument

    return SchemasDocument(schemas=names).text()
