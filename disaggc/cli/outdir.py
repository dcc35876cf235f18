"""Writes a tree of artifacts into a directory and remembers what it wrote there; touches no file of anyone else.

The record is written before the files and again after them: a run that was killed leaves only files that the next run
knows as its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from disaggc.cli.history import RECORD_LIMIT
from disaggc.emit.artifacts import Artifact, ArtifactSet
from disaggc.spec.files import read_file

RECORD = ".disaggc-build.json"
RECORD_SCHEMA = "disaggc.build-record/v1"


class OutputError(Exception):
    """The directory cannot take the files; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a build did: paths by what happened to them."""

    created: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def content_digest(text: str) -> str:
    """Hex SHA-256 of a file's text."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def write_tree(directory: Path, artifacts: ArtifactSet, *, fingerprint: str) -> Written:
    """Bring the directory to exactly these files of ours; raises OutputError before the first change if it may not."""
    try:
        return _write_tree(directory, artifacts, fingerprint)
    except OSError as problem:
        raise OutputError(f"`{problem.filename or directory}`: {problem.strerror}") from None


def _write_tree(directory: Path, artifacts: ArtifactSet, fingerprint: str) -> Written:
    own = _recorded(directory)
    wanted = {artifact.path: artifact for artifact in artifacts.artifacts}
    _refuse_foreign(directory, wanted, own)
    before = {path: present(directory, path) for path in wanted}
    stale = sorted(path for path in own if path not in wanted)
    directory.mkdir(parents=True, exist_ok=True)
    _write_record(directory, artifacts, fingerprint, also=stale)
    for path, artifact in wanted.items():
        if not _same(before[path], artifact, directory):
            _replace(directory / path, artifact.text, artifact.mode)
    for path in stale:
        _remove(directory, path)
    _write_record(directory, artifacts, fingerprint, also=())
    same = {path for path, artifact in wanted.items() if before[path] == artifact.text}
    return Written(
        created=tuple(sorted(path for path in wanted if before[path] is None)),
        changed=tuple(sorted(path for path in wanted if before[path] is not None and path not in same)),
        unchanged=tuple(sorted(same)),
        removed=tuple(stale),
    )


def _recorded(directory: Path) -> frozenset[str]:
    place = directory / RECORD
    if directory.exists() and not directory.is_dir():
        raise OutputError(f"`{directory}` is not a directory")
    if not os.path.lexists(place):
        return frozenset()
    content = read_file(place, RECORD_LIMIT)
    if not isinstance(content, bytes):
        raise OutputError(f"`{place}`: {content.message}")
    try:
        document = json.loads(content)
        if document["schema"] != RECORD_SCHEMA:
            raise OutputError(f"`{directory / RECORD}` was written by another version of disaggc")
        paths = frozenset(str(entry["path"]) for entry in document["files"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise OutputError(
            f"`{directory / RECORD}` is damaged; remove the directory and build again"
        ) from None
    if any(not _inside(path) for path in paths):
        raise OutputError(f"`{directory / RECORD}` names files outside the directory")
    return paths


def _refuse_foreign(directory: Path, wanted: Iterable[str], own: frozenset[str]) -> None:
    for path in wanted:
        if not _inside(path):
            raise ValueError(f"artifact path {path!r} leaves its directory")
        for parent in list(PurePosixPath(path).parents)[:-1]:
            place = directory / parent
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                raise OutputError(f"`{place}` is in the way: not a directory of this build")
        if (directory / path).is_dir() and not (directory / path).is_symlink():
            raise OutputError(f"`{directory / path}` is in the way: a directory where a file belongs")
        if path not in own and os.path.lexists(directory / path):
            raise OutputError(
                f"`{directory / path}` exists and was not written by disaggc; choose another --out"
            )


def _inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not PurePosixPath(path).is_absolute() and ".." not in parts and path != RECORD


def present(directory: Path, path: str) -> str | None:
    """The text of a file that stands there; empty where it is no file or no text, None where there is nothing."""
    place = directory / path
    if os.path.lexists(place) and (place.is_symlink() or not place.is_file()):
        return ""
    try:
        return place.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return ""
    except OSError:
        return None


def _same(before: str | None, artifact: Artifact, directory: Path) -> bool:
    return before == artifact.text and (directory / artifact.path).stat().st_mode & 0o777 == artifact.mode


def _write_record(directory: Path, artifacts: ArtifactSet, fingerprint: str, *, also: Iterable[str]) -> None:
    files: list[Mapping[str, object]] = [
        {
            "path": artifact.path,
            "sha256": content_digest(artifact.text),
            "mode": f"{artifact.mode:04o}",
            "address": artifact.address,
            "on_change": artifact.on_change,
        }
        for artifact in artifacts.artifacts
    ]
    files += [{"path": path, "stale": True} for path in also]
    document = {
        "schema": RECORD_SCHEMA,
        "target": artifacts.target,
        "fingerprint": fingerprint,
        "files": files,
    }
    _replace(directory / RECORD, json.dumps(document, indent=2, sort_keys=True) + "\n", 0o644)


def _replace(place: Path, text: str, mode: int) -> None:
    """The whole new file or the whole old one, whenever the process dies."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = place.with_name(f".{place.name[:100]}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _remove(directory: Path, path: str) -> None:
    place = directory / path
    place.unlink(missing_ok=True)
    for parent in list(PurePosixPath(path).parents)[:-1]:
        try:
            (directory / parent).rmdir()
        except OSError:
            return
