"""What was built last from a spec, kept beside it under `.disaggc/`: digests only, so nothing secret is repeated."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disaggc.spec.files import read_file

if TYPE_CHECKING:
    from disaggc.ir.changes import Baseline
    from disaggc.ir.plan import DeploymentPlan

FOLDER = ".disaggc"
LOCK = "disaggc.lock"
SCHEMA = "disaggc.last-build/v1"
RECORD_LIMIT = 64 * 2**20
"""Largest record of a build that is read; ten thousand replicas take 20 MiB."""


def record_path(spec: Path, target: str) -> Path:
    """Where the last build of a spec for a target is recorded; overlays belong to the first file."""
    return spec.parent / FOLDER / f"{spec.stem}.{target}.json"


def lock_path(spec: Path) -> Path:
    """disaggc.lock beside the first file of a spec."""
    return spec.parent / LOCK


def write_lock(spec: Path, text: str | None) -> str | None:
    """Write the lock where it changed; why not, where it cannot be written."""
    path = lock_path(spec)
    try:
        if text is not None and (not path.exists() or path.read_text(encoding="utf-8") != text):
            write_atomically(path, text)
    except (OSError, UnicodeDecodeError) as problem:
        return f"`{path}`: {problem.strerror if isinstance(problem, OSError) else 'is not text'}"
    return None


def last_build(spec: Path, target: str) -> Baseline | None:
    """What was built last; None where nothing was, or where the record cannot be read."""
    from disaggc.ir.changes import Baseline, Facet, Origin

    try:
        content = read_file(record_path(spec, target), RECORD_LIMIT)
        if not isinstance(content, bytes):
            return None
        found: dict[str, Any] = json.loads(content)
        if found["schema"] != SCHEMA:
            return None
        facets = {
            str(address): Facet(part["place"], part["process"], tuple(part["because"]))
            for address, part in found["facets"].items()
        }
        origin = Origin(
            found["origin"]["catalog"], found["origin"]["calibration"], found["origin"]["disaggc"]
        )
        return Baseline(facets, {str(path): str(value) for path, value in found["fields"].items()}, origin)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def record_build(spec: Path, target: str, *, plan: DeploymentPlan, fields: Mapping[str, str]) -> str | None:
    """Remember this build; why not, where it cannot be written (a read-only checkout is no error)."""
    from disaggc.ir.canonical import canonical_json, fingerprint
    from disaggc.ir.changes import facets_of, origin_of

    origin = origin_of(plan)
    facets = {
        address: {"place": facet.place, "process": facet.process, "because": list(facet.because)}
        for address, facet in facets_of(plan).items()
    }
    document = {
        "schema": SCHEMA,
        "fingerprint": fingerprint(plan),
        "facets": facets,
        "fields": dict(fields),
        "origin": {"catalog": origin.catalog, "calibration": origin.calibration, "disaggc": origin.disaggc},
    }
    path = record_path(spec, target)
    try:
        path.parent.mkdir(exist_ok=True)
        ignore = path.parent / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        write_atomically(path, canonical_json(document))
    except OSError as problem:
        return f"`{path}`: {problem.strerror}"
    return None


def write_atomically(path: Path, text: str) -> None:
    """The whole new file or the whole old one, whenever the process dies.

    A link stays a link and its file is written. What is no regular file (/dev/null, a pipe) is written to: putting a
    file in its place would take the device from everybody.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    place = Path(os.path.realpath(path))
    temporary = place.with_name(f".{place.name[:100]}.{secrets.token_hex(6)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
