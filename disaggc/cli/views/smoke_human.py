"""Findings of a smoke test, for people: one line each, as they come, and a line of counts."""

from __future__ import annotations

from collections.abc import Sequence

from disaggc.cli.views.text import Paint
from disaggc.rollout.smoke_model import Finding


def line(finding: Finding, paint: Paint) -> str:
    """`ok    kv-moves        chat/prefill/0 -> chat/decode/0: ...`."""
    match finding.state:
        case "pass":
            mark = paint.good("ok  ")
        case "fail":
            mark = paint.bad("FAIL")
        case "skip":
            mark = paint.notable("skip")
    return f"{mark}  {finding.check:<14}  {finding.subject}: {finding.sentence}"


def summary(found: Sequence[Finding]) -> str:
    """How many there were of each."""
    counts = {state: sum(one.state == state for one in found) for state in ("pass", "fail", "skip")}
    return f"{counts['pass']} passed, {counts['fail']} failed, {counts['skip']} not judged"
