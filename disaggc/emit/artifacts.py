"""What an emitter returns: named texts, sorted, with modes and the cost of changing them. Writes nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OnChange = Literal["none", "reload", "restart-replica", "recreate-replica"]


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file. path: relative, POSIX separators. host: node it belongs to (None = the control plane or no host).

    address: the plan element it realises. on_change: what a changed file costs the running system.
    """

    path: str
    text: str
    mode: int
    address: str
    on_change: OnChange
    host: str | None = None


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """All files of one target, sorted by path."""

    target: str
    artifacts: tuple[Artifact, ...]
