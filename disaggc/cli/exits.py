"""Exit codes, the same for every verb. Knows no verb."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from disaggc.diagnostics import Diagnostic, has_errors

RULE_CRASHED = "DGC190"


class Exit(IntEnum):
    """What the caller's shell learns."""

    DONE = 0
    ERRORS = 1
    CHANGES_PENDING = 2
    INFEASIBLE = 3
    NOT_PROVED = 5
    CHECK_FAILED = 6
    USAGE = 64
    BUG = 70
    INTERRUPTED = 130


def exit_for(diagnostics: Iterable[Diagnostic], *, deny_warnings: bool) -> Exit:
    """The code for a run that ended with these findings; a crashed check is a bug of disaggc."""
    found = tuple(diagnostics)
    codes = {d.code for d in found if d.severity == "error"}
    if RULE_CRASHED in {d.code for d in found}:
        return Exit.BUG
    if codes - {"DGC501", "DGC502"} and not codes & {"DGC501", "DGC502"}:
        return Exit.ERRORS
    if "DGC501" in codes:
        return Exit.INFEASIBLE
    if "DGC502" in codes:
        return Exit.NOT_PROVED
    denied = deny_warnings and any(d.severity == "warning" for d in found)
    return Exit.ERRORS if denied or has_errors(found) else Exit.DONE
