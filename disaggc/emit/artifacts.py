"""What an emitter returns: named texts, sorted, with modes and the cost of changing them. Writes nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from disaggc.emit.stamp import content_digest

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

    @property
    def digest(self) -> str:
        """Digest of the text without the marks that name the plan: equal digests mean nothing to do."""
        return content_digest(self.text)


@dataclass(frozen=True, slots=True)
class ArtifactSet:
    """All files of one target, sorted by path."""

    target: str
    artifacts: tuple[Artifact, ...]
