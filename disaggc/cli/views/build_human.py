"""What `disaggc build` did, for people: every file with what happened to it."""

from __future__ import annotations

from pathlib import Path

from disaggc.cli.outdir import Written
from disaggc.cli.views.text import table
from disaggc.emit.artifacts import ArtifactSet


def build_text(artifacts: ArtifactSet, written: Written, out: Path) -> str:
    """The files and a line of counts."""
    marks = {
        **dict.fromkeys(written.created, "new"),
        **dict.fromkeys(written.changed, "changed"),
        **dict.fromkeys(written.unchanged, "same"),
        **dict.fromkeys(written.removed, "removed"),
    }
    addresses = {artifact.path: artifact.address for artifact in artifacts.artifacts}
    rows = [(marks[path], path, addresses.get(path, "")) for path in sorted(marks)]
    counts = [
        f"{len(paths)} {word}"
        for word, paths in (
            ("new", written.created),
            ("changed", written.changed),
            ("the same", written.unchanged),
            ("removed", written.removed),
        )
        if paths
    ]
    files = "file" if len(artifacts.artifacts) == 1 else "files"
    return "\n".join(
        [
            *table(rows),
            f"{len(artifacts.artifacts)} {files} for {artifacts.target} in {out}: {', '.join(counts)}",
        ]
    )
