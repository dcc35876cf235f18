"""How published tables write parallelism -> the shape of one replica. Knows no model."""

from __future__ import annotations

import math
import re

from disaggc.ir.plan import Shape


def shape_of(text: str, gpus: float) -> Shape | None:
    """`TP1DPA4EP4`, `DEP8`, `TP8`, `2xTP4`, `TP16DP16EP`, `EP72 (9 nodes)`; None where it says too little.

    gpus: accelerators of one replica where the table states them; settles what the text leaves open.
    """
    known = int(gpus) if math.isfinite(gpus) else None
    found = _parallel(re.sub(r"^\d+x", "", text.strip()), known)
    if found is None or found.accelerators < 1:
        return None
    return found if known in {None, found.accelerators} else None


def copies_of(text: str) -> int | None:
    """Replicas that the text itself states: `2xTP4`."""
    found = re.match(r"(\d+)x", text.strip())
    return int(found.group(1)) if found else None


def _parallel(text: str, known: int | None) -> Shape | None:  # noqa: PLR0911 - one spelling a branch
    if match := re.match(r"D(?:P)?EP\s?(\d+)", text):
        return Shape(dp=int(match.group(1)), ep=int(match.group(1)))
    if match := re.match(r"TP(\d+)DPA?(\d+)EP(\d*)(?!\w)", text):
        tp, dp = int(match.group(1)), int(match.group(2))
        if tp == dp and tp > 1:  # attention split by data only, experts over all
            tp = 1
        return Shape(tp=tp, dp=dp, ep=tp * dp if match.group(3) != "1" and tp * dp > 1 else 1)
    if match := re.match(r"DP(\d+)EP(\d+)", text):
        return Shape(dp=int(match.group(1)), ep=int(match.group(2)))
    if match := re.match(r"EP(\d+)(?!\d|\?)", text):
        return Shape(dp=int(match.group(1)), ep=int(match.group(1)))
    if match := re.match(r"TP(\d+)PP(\d+)", text):
        return Shape(tp=int(match.group(1)), pp=int(match.group(2)))
    if match := re.match(r"TEP(\d+)(?!\w)", text):
        return Shape(tp=int(match.group(1)), ep=int(match.group(1)))
    if match := re.match(r"TP(\d+)(EP)?(?!\w)", text):
        tp = int(match.group(1))
        return Shape(tp=tp, ep=tp if match.group(2) else 1)
    if text in {"", "TP?"} and known is not None:
        return Shape(tp=known)
    return None
