"""The processes of a local stack and the routing in effect, for people."""

from __future__ import annotations

from collections.abc import Sequence

from disaggc.cli.local_routing import RoutingState
from disaggc.cli.local_stack import ProgramStatus
from disaggc.cli.views.text import table
from disaggc.hosts.readiness import ANSWER_S

_SAID = {
    "refused": "starting: not listening yet",
    "silent": f"silent: no answer in {ANSWER_S:.0f} s",
    "unready": "not ready: it answers, not with 200",
}


def local_text(found: Sequence[ProgramStatus], routing: Sequence[RoutingState]) -> str:
    """A row for each process, a line for each service's routing and one of counts."""
    rows = [
        (
            one.program.address,
            "ready" if one.ready else _SAID.get(one.answer or "", one.state),
            f"pid {one.pid}" if one.pid else "",
            f"up {_elapsed(one.up_s)}" if one.pid else "",
            f"ended {one.ends} x" if one.ends else "",
            (one.program.ready or "").rpartition("/")[0],
            f"faults {one.program.faults}" if one.program.faults else "",
        )
        for one in found
    ]
    serving = sum(one.ready for one in found)
    return "\n".join((*table(rows), *(one.sentence for one in routing), f"{serving} of {len(found)} serve"))


def _elapsed(seconds: float) -> str:
    """`9 s`, `1 min 5 s`, `3 h 12 min`, `2 d 4 h`: the two largest units, as a clock would."""
    left = int(seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count) or "0 s"
