"""Options that several verbs share, each defined once. Knows no verb."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Color(StrEnum):
    """When to use colour."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class Format(StrEnum):
    """Formats every verb has."""

    HUMAN = "human"
    JSON = "json"


class PlanFormat(StrEnum):
    """Formats of `plan`."""

    HUMAN = "human"
    JSON = "json"
    MARKDOWN = "markdown"


class FindingsFormat(StrEnum):
    """Formats of `validate`."""

    HUMAN = "human"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    JUNIT = "junit"


class Target(StrEnum):
    """Targets that disaggc ships."""

    KUBERNETES = "kubernetes"
    SYSTEMD = "systemd"
    COMPOSE = "compose"
    LOCAL = "local"


class Deny(StrEnum):
    """What `--deny` turns into errors."""

    WARNINGS = "warnings"


def out_path(text: str) -> Path:
    """A path to write to. An empty one is an unset variable, not the working directory."""
    if not text:
        raise typer.BadParameter("the path is empty")
    return Path(text)


DEFAULT_SPEC = Path("disaggc.yaml")

SpecFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="SPEC", help="Spec files, later ones overlay earlier ones. Default: disaggc.yaml."
    ),
]
MoreFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--file", "-f", metavar="FILE", help="A further spec file (repeatable); overlays those before it."
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Set one value, e.g. services.chat.workload.rag.rate=5/s."
    ),
]
TargetOption = Annotated[
    Target | None, typer.Option("--target", help="Compile for this target, not the spec's own.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]
ColorOption = Annotated[Color, typer.Option("--color", help="When to use colour; NO_COLOR is honoured.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no warnings on stderr.")]
NoInput = Annotated[bool, typer.Option("--no-input", help="Never ask. No verb of this version asks.")]
DenyOption = Annotated[Deny | None, typer.Option("--deny", help="Treat warnings as errors.")]
Upgrade = Annotated[
    bool, typer.Option("--upgrade", help="Solve anew instead of keeping what disaggc.lock records.")
]


def spec_files(positional: list[Path] | None, more: list[Path] | None) -> tuple[Path, ...]:
    """The files in overlay order; `disaggc.yaml` where none is named."""
    return (*(positional or []), *(more or [])) or (DEFAULT_SPEC,)
