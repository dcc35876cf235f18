"""The routing files that stand in a folder already, with what administration made of them, for their next numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from disaggc.cli.outdir import present
from disaggc.emit.artifacts import ArtifactSet
from disaggc.emit.numbering import Standing, numbered
from disaggc.routing.live import SUFFIX, LiveTable
from disaggc.routing.text import TableError, loaded


def numbered_after(directory: Path, artifacts: ArtifactSet, *, least: int) -> ArtifactSet:
    """The artifacts with routing files numbered after those of the folder."""
    return numbered(artifacts, _standing(directory), least=least)


def _standing(directory: Path) -> Callable[[str], Standing | None]:
    def found(path: str) -> Standing | None:
        text = present(directory, path)
        return None if text is None else Standing(text, _administered(directory, path))

    return found


def _administered(directory: Path, path: str) -> int:
    """The number administration has come to, where its table is in the same folder; on other hosts it is not seen."""
    text = present(directory, f"{path}{SUFFIX}")
    try:
        return loaded(LiveTable, text).table.generation if text else 0
    except TableError:
        return 0
