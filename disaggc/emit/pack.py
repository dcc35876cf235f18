"""Target packs: the manifest of a target's files and the templates that place text in them. Knows no plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import jinja2
import yaml
from pydantic import BaseModel, ConfigDict, Field

from disaggc.emit.artifacts import OnChange
from disaggc.emit.quoting import FILTERS
from disaggc.resources import shipped

TargetKind = Literal["kubernetes", "systemd", "compose", "local"]


class PackPart(BaseModel):
    """A part of a pack's manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FileRule(PackPart):
    """One kind of file a target is made of."""

    template: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.\-]*\.j2$")] | None = None
    """Template under templates/; None: the text is made by code (JSON)."""
    mode: Annotated[str, Field(pattern=r"^0[0-7]{3}$")] = "0644"
    """File mode, octal."""
    on_change: OnChange
    """What a changed file costs the running system."""


class PackManifest(PackPart):
    """target.yaml of a pack."""

    kind: TargetKind
    """Target it belongs to."""
    summary: Annotated[str, Field(min_length=1)]
    """One sentence on what it emits."""
    files: Annotated[dict[str, FileRule], Field(min_length=1)]
    """Kinds of files by name."""


@dataclass(frozen=True, slots=True)
class TargetPack:
    """A pack ready to render: its manifest and its templates, compiled on first use."""

    manifest: PackManifest
    templates: jinja2.Environment

    def text(self, file: str, view: object) -> str:
        """The file of that kind for one view; the template sees it as `view` and nothing else."""
        rule = self.manifest.files[file]
        if rule.template is None:
            raise ValueError(f"file `{file}` of target `{self.manifest.kind}` has no template")
        return self.templates.get_template(rule.template).render(view=view)

    def rule(self, file: str) -> FileRule:
        """How that kind of file is written."""
        return self.manifest.files[file]

    def mode(self, file: str) -> int:
        """Its mode as a number."""
        return int(self.manifest.files[file].mode, 8)


@cache
def load_pack(kind: TargetKind, *, root: Path | None = None) -> TargetPack:
    """The shipped pack of a target; `root` names another folder of packs."""
    folder = (root or shipped("targets")) / kind
    manifest = PackManifest.model_validate(
        yaml.safe_load((folder / "target.yaml").read_text(encoding="utf-8"))
    )
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # noqa: S701 - nothing here is HTML; every value passes its format's own filter
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(_filters())
    return TargetPack(manifest, environment)


def _filters() -> Mapping[str, object]:
    return dict(FILTERS)
