"""The processes of a local stack, for people."""

from __future__ import annotations

from collections.abc import Sequence

from disaggc.cli.local_stack import ProgramStatus
from disaggc.cli.views.text import table
from disaggc.units import format_duration


def local_text(found: Sequence[ProgramStatus]) -> str:
    """A row for each process and a line of counts."""
    rows = [
        (
            one.program.address,
            "ready" if one.ready else one.state,
            f"pid {one.pid}" if one.pid else "",
            format_duration(one.up_s) if one.pid else "",
            (one.program.ready or "").rpartition("/")[0],
        )
        for one in found
    ]
    serving = sum(one.ready for one in found)
    return "\n".join((*table(rows), f"{serving} of {len(found)} serve"))
