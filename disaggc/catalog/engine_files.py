"""Engine snapshot files -> EngineSnapshot, and which snapshot answers for a version. Knows file names and no flag."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from disaggc.catalog.engines import ConnectorFacts, EngineSnapshot, FlagFacts
from disaggc.catalog.tables import DATA, Table, data_text
from disaggc.diagnostics import Diagnostic, Outcome, error, warning

_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})\.(\d{1,6})(.*)")
_FILE = re.compile(r"(\d+)\.(\d+)\.(\d+)\.json")


def engine_versions() -> tuple[str, ...]:
    """Versions with a snapshot, oldest first."""
    return tuple(".".join(map(str, version)) for version in _known())


def engine_snapshot(text: str) -> Outcome[EngineSnapshot]:
    """The snapshot for a version: its own, or the nearest lower one with a warning (DGC204); none below is DGC205."""
    match = _VERSION.fullmatch(text.strip())
    known = _known()
    oldest = ".".join(map(str, known[0]))
    if match is None:
        message = f"`{text[:40]}` is not a vLLM version"
        return Outcome(
            None, (error("DGC205", message, help=f"write a version such as `{engine_versions()[-1]}`"),)
        )
    wanted = (int(match[1]), int(match[2]), int(match[3]))
    lower = [version for version in known if version <= wanted]
    if not lower:
        message = f"vLLM {_text(wanted)} is older than {oldest}, the oldest version disaggc knows"
        return Outcome(None, (error("DGC205", message, help=f"pin vLLM {oldest} or later"),))
    chosen = lower[-1]
    exact = chosen == wanted and not match[4].startswith(("rc", "a", "b", ".dev"))
    notes: tuple[Diagnostic, ...] = () if exact else (_nearest(text.strip(), _text(chosen)),)
    return Outcome(read_snapshot(json.loads(data_text(f"engines/{_text(chosen)}.json")), exact=exact), notes)


def _nearest(wanted: str, chosen: str) -> Diagnostic:
    message = f"vLLM {wanted[:40]} has no flag snapshot, its settings are checked against {chosen}"
    return warning(
        "DGC204", message, help=f"pin one of {', '.join(engine_versions())}, or check new flags by hand"
    )


def read_snapshot(raw: Mapping[str, Any], *, exact: bool) -> EngineSnapshot:
    """The typed snapshot of a file's content."""
    major, minor, patch = (int(part) for part in str(raw["version"]).split("."))
    flags = {name: _flag(name, row) for name, row in raw["flags"].items()}
    env = frozenset(raw["env"])
    connectors = {name: _connector(name, row) for name, row in raw["connectors"].items()}
    keys = frozenset(raw["kv_transfer_keys"])
    gone = Table("engines/removed.toml")
    return EngineSnapshot(
        version=(major, minor, patch),
        exact=exact,
        flags=flags,
        env_names=env,
        connectors=connectors,
        source=str(raw["source"]),
        kv_transfer_keys=keys,
        removed_flags=_gone(gone, "flags", frozenset(flags)),
        removed_env=_gone(gone, "env", env),
        removed_connectors=_gone(gone, "connectors", frozenset(connectors)),
        removed_kv_transfer_keys=_gone(gone, "kv_transfer_keys", keys),
    )


def _flag(name: str, row: Mapping[str, Any]) -> FlagFacts:
    return FlagFacts(
        name=name,
        kind=row["kind"],
        aliases=tuple(row.get("aliases", ())),
        default=row.get("default"),
        choices=tuple(row.get("choices", ())),
        negations=tuple(row.get("negations", ())),
    )


def _connector(name: str, row: Mapping[str, Any]) -> ConnectorFacts:
    return ConnectorFacts(name, row["family"], frozenset(row["options"]), row["hma"])


def _gone(table: Table, section: str, present: frozenset[str]) -> dict[str, str]:
    return {name: reason for name, reason in (table.get(section) or {}).items() if name not in present}


def _known() -> tuple[tuple[int, int, int], ...]:
    matches = [m for entry in (DATA / "engines").iterdir() if (m := _FILE.fullmatch(entry.name))]
    return tuple(sorted((int(m[1]), int(m[2]), int(m[3])) for m in matches))


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
