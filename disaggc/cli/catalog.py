"""`disaggc catalog`: the facts that plans rest on, each with its source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disaggc.cli.console import Console
from disaggc.cli.exits import Exit
from disaggc.cli.options import Color, ColorOption, Format, FormatOption, NoInput, Quiet

if TYPE_CHECKING:
    from disaggc.catalog.facts import ModelFacts
    from disaggc.catalog.load import Catalog
    from disaggc.diagnostics import Outcome

app = typer.Typer(
    help="List accelerators, models, engines, connectors and fabrics, with sources.",
    rich_markup_mode=None,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("accelerators")
def accelerators(
    output: FormatOption = Format.HUMAN,
    *,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """List accelerators: memory, bandwidth, dense peaks, links."""
    from disaggc.catalog.load import load_catalog
    from disaggc.cli.views import catalog_human as human
    from disaggc.cli.views import catalog_json as json

    catalog = load_catalog()
    facts = tuple(fact for name in catalog.accelerator_ids if (fact := catalog.accelerator(name)) is not None)
    document = json.accelerators(facts)
    Console(color, quiet).result(document.text() if output is Format.JSON else human.accelerators(facts))
    return Exit.DONE


@app.command("models", short_help="List models, or size one by id or config.json.")
def models(
    model: Annotated[
        str | None, typer.Argument(metavar="ID|CONFIG.JSON", help="One model: a catalog id or a config.json.")
    ] = None,
    output: FormatOption = Format.HUMAN,
    *,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """List models, or size one: parameters, weight bytes, KV bytes per token."""
    from disaggc.catalog.load import load_catalog
    from disaggc.cli.views import catalog_human as human
    from disaggc.cli.views import models_json as json

    console, catalog = Console(color, quiet), load_catalog()
    if model is None:
        facts = tuple(fact for name in catalog.model_ids if (fact := catalog.model(name)) is not None)
        console.result(json.models(facts).text() if output is Format.JSON else human.models(facts))
        return Exit.DONE
    found = _model(catalog, model)
    if found.diagnostics:
        from disaggc.diagnostics.codes import CODES
        from disaggc.diagnostics.render import Report
        from disaggc.diagnostics.render.json import json as rendered

        report = Report(found.diagnostics, names={code.id: code.name for code in CODES.values()})
        if found.value is None and output is Format.JSON:
            console.result(rendered(report))
        else:
            console.report(report)
    if found.value is None:
        return Exit.ERRORS
    console.result(json.model(found.value).text() if output is Format.JSON else human.model(found.value))
    return Exit.DONE


@app.command("engines")
def engines(
    output: FormatOption = Format.HUMAN,
    *,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """List the vLLM versions whose flags disaggc knows."""
    from disaggc.catalog.load import load_catalog
    from disaggc.cli.views import catalog_human as human
    from disaggc.cli.views import catalog_json as json

    catalog = load_catalog()
    found = tuple(
        s for version in catalog.engine_versions if (s := catalog.engine(version).value) is not None
    )
    Console(color, quiet).result(
        json.engines(found).text() if output is Format.JSON else human.engines(found)
    )
    return Exit.DONE


@app.command("connectors")
def connectors(
    output: FormatOption = Format.HUMAN,
    *,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """List the KV connectors of the newest known vLLM."""
    from disaggc.catalog.load import load_catalog
    from disaggc.cli.views import catalog_human as human
    from disaggc.cli.views import catalog_json as json

    catalog = load_catalog()
    facts, source = catalog.connectors, f"vLLM {catalog.engine_versions[-1]}"
    document = json.connectors(facts, source)
    Console(color, quiet).result(
        document.text() if output is Format.JSON else human.connectors(facts, source)
    )
    return Exit.DONE


@app.command("fabrics", short_help="List networks, their line rates and what KV reaches.")
def fabrics(
    output: FormatOption = Format.HUMAN,
    *,
    color: ColorOption = Color.AUTO,
    quiet: Quiet = False,
    _no_input: NoInput = False,
) -> int:
    """List networks: line rates by name, latency, share of the line rate that KV transfer reaches."""
    from disaggc.catalog.load import load_catalog
    from disaggc.cli.views import catalog_human as human
    from disaggc.cli.views import catalog_json as json

    catalog = load_catalog()
    rows = tuple((fabric, catalog.fabric_speeds(fabric.type)) for fabric in catalog.fabrics)
    Console(color, quiet).result(json.fabrics(rows).text() if output is Format.JSON else human.fabrics(rows))
    return Exit.DONE


def _model(catalog: Catalog, name: str) -> Outcome[ModelFacts]:
    """A config.json where the name is a file or ends like one, else a catalog id."""
    from disaggc.catalog.model_config import read_model_config
    from disaggc.diagnostics import Outcome, error
    from disaggc.spec.files import SPEC_LIMIT, decode, read_file
    from disaggc.spec.near import misspelt

    path = Path(name)
    if name.endswith(".json") or path.is_file():
        content = read_file(path, SPEC_LIMIT)
        text = decode(content) if isinstance(content, bytes) else content
        if not isinstance(text, str):
            return Outcome(None, (error("DGC101", f"`{name}`: {text.message}", help=text.help),))
        return read_model_config(text, name)
    facts = catalog.model(name)
    if facts is None:
        near = misspelt(name, catalog.model_ids)
        meant = f"did you mean `{near}`? else " if near else ""
        advice = f"{meant}see `disaggc catalog models`, or give the path of its config.json"
        return Outcome(None, (error("DGC202", f"the catalog does not know the model `{name}`", help=advice),))
    return Outcome(facts)
