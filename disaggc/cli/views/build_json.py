"""`disaggc.build/v1`: what `disaggc build --format json` prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from disaggc.cli.outdir import Written, content_digest
from disaggc.cli.views.document import Document, Item
from disaggc.diagnostics.render.json import DiagnosticItem, items

if TYPE_CHECKING:
    from disaggc.compilation import Compiled


class FileItem(Item):
    """One file."""

    path: str
    """Relative to the output directory, POSIX separators."""
    sha256: str
    """Of its bytes."""
    mode: str
    """Octal, e.g. `0644`."""
    address: str
    """The part of the plan it realises."""
    host: str | None
    """Node it belongs to; null for none."""
    on_change: Literal["none", "reload", "restart-replica", "recreate-replica"]
    """What a changed file costs the running system."""
    state: Literal["new", "changed", "same"]
    """What this build did."""


class BuildDocument(Document):
    """Output of `disaggc build --format json`."""

    schema_: Annotated[Literal["disaggc.build/v1"], Field(alias="schema")] = "disaggc.build/v1"
    """Name and version of this format."""
    target: str | None
    """Target it was compiled for."""
    out: str
    """The output directory as given."""
    fingerprint: str | None
    """Digest of the plan; null when nothing was written."""
    files: tuple[FileItem, ...]
    """Every file of the target."""
    removed: tuple[str, ...]
    """Files of an earlier build that went away."""
    diagnostics: tuple[DiagnosticItem, ...]
    """Findings, sorted by position."""


def build_document(done: Compiled, out: Path, written: Written | None) -> BuildDocument:
    """What was written; no files when the spec has errors."""
    from disaggc.ir.canonical import fingerprint

    artifacts = done.artifacts.artifacts if done.artifacts is not None and written is not None else ()
    created = frozenset(written.created) if written else frozenset()
    changed = frozenset(written.changed) if written else frozenset()
    return BuildDocument(
        target=done.target,
        out=str(out),
        fingerprint=fingerprint(done.plan) if done.plan is not None and written is not None else None,
        files=tuple(
            FileItem(
                path=artifact.path,
                sha256=content_digest(artifact.text),
                mode=f"{artifact.mode:04o}",
                address=artifact.address,
                host=artifact.host,
                on_change=artifact.on_change,
                state="new"
                if artifact.path in created
                else "changed"
                if artifact.path in changed
                else "same",
            )
            for artifact in artifacts
        ),
        removed=written.removed if written else (),
        diagnostics=tuple(DiagnosticItem.model_validate(item) for item in items(done.report)),
    )
