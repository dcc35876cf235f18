"""What every renderer gets: placed diagnostics, the texts they point into and the names of their codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from disaggc.diagnostics.model import Diagnostic, Severity, sort_key


@dataclass(frozen=True, slots=True)
class Report:
    """One run's findings. sources: file -> its text, for excerpts. names: code -> kebab-case name."""

    diagnostics: tuple[Diagnostic, ...]
    sources: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    version: str = "0"
    """Of disaggc; formats that name their tool carry it."""

    def sorted(self) -> tuple[Diagnostic, ...]:
        """Reading order."""
        return tuple(sorted(self.diagnostics, key=sort_key))

    def name(self, code: str) -> str:
        """The code's name; the code itself where none is known."""
        return self.names.get(code, code)

    def summary(self) -> str:
        """`2 errors, 1 warning`; `no findings` when there are none."""
        counts = Counter(d.severity for d in self.diagnostics)
        parts = [f"{counts[s]} {s}{'' if counts[s] == 1 else 's'}" for s in Severity if counts[s]]
        return ", ".join(parts) or "no findings"
