"""How much one YAML document may hold: depth and values, aliases counted as what they expand to."""

from __future__ import annotations

from disaggc.diagnostics import Diagnostic, SourceSpan
from disaggc.spec.findings import finding

DEPTH_LIMIT = 64
VALUE_LIMIT = 100_000
"""Most values of one file after aliases are expanded."""


class StopReadingError(Exception):
    """Reading cannot go on; carries the finding. Caught by the reader, seen by nobody else."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Budget:
    """What has been read so far. values: aliases expanded; deepest: the depth reached since it was last reset."""

    def __init__(self) -> None:
        self.values = 0
        self.deepest = 0

    def count(self, values: int, span: SourceSpan) -> None:
        """So many more values; stops an alias bomb before it is built."""
        self.values += values
        if self.values > VALUE_LIMIT:
            message = f"the document expands to more than {VALUE_LIMIT:,} values"
            raise StopReadingError(
                finding("DGC105", message, span, help="write the values without nested aliases")
            )

    def enter(self, depth: int, span: SourceSpan) -> None:
        """A value at this depth; keeps every later recursion short."""
        self.deepest = max(self.deepest, depth)
        if depth > DEPTH_LIMIT:
            raise StopReadingError(finding("DGC105", f"values are nested more than {DEPTH_LIMIT} deep", span))
