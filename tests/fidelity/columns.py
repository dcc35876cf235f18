"""The columns of the scoreboard: what each way of predicting says of each measured value.

naive: plain roofline, every byte and FLOP at the data sheet's peak, nothing fixed. prior: what a plan says of hardware
nobody measured. others: constants fitted on all other sources. calibrated: fitted on every second point of the system.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from disaggc.perf.constants import Values
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.estimate import Basis
from disaggc.perf.spread import stretches
from tests.fidelity.asking import Asked, NoRoomError, Predicted
from tests.fidelity.others import Others
from tests.fidelity.parallel import mapped
from tests.fidelity.points import Point
from tests.fidelity.subjects import subject_of
from tests.fidelity.systems import Fitted, fitted, informed
from tests.fidelity.widths import stretched

Figures = dict[str, dict[str, Predicted]]
"""Column -> quantity -> what it says."""
COLUMNS = ("naive", "prior", "others", "calibrated")
UNFITTED = ("naive", "prior")
_LEAST_POINTS = 6
"""Points a system needs before half of them can calibrate it."""
_MOST_FITTED = 24
_PEAK = {
    "kappa": 1.0,
    "imbalance": 1.0,
    "batch_slope": 0.0,
    "burst": 0.0,
    "step_miss": 1.0,
    "prompt_miss": 1.0,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """One measured value and what each column says of it."""

    source: str
    system: tuple[str, ...]
    quantity: str
    row_id: str
    measured: float
    said: dict[str, Predicted]
    plain: dict[str, Predicted]
    """The same before the ranges were stretched."""


@dataclass(slots=True)
class Board:
    """Everything that was judged, and what was not with the reason. calibrated: fits by index of what was asked."""

    judged: list[Judged] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    calibrated: dict[int, Fitted] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)


def board_of(points: Iterable[Point], columns: Sequence[str] = COLUMNS, *, jobs: int = 1) -> Board:
    """Asks these columns about every point, in so many processes."""
    board = asked_of(points)
    others = Others(board.asked, jobs) if "others" in columns else None
    board.calibrated = calibrated(board.asked, jobs) if "calibrated" in columns else {}

    def figures(i: int) -> Figures:
        return _figures(board.asked[i], others, board.calibrated.get(i))

    for asked, plain in zip(board.asked, mapped(figures, range(len(board.asked)), jobs), strict=True):
        source = asked.subject.point.source
        prior = stretches(Basis.PRIOR, source)  # a fit on strangers knows this source no better
        by = {"prior": prior, "others": prior, "calibrated": stretches(Basis.CALIBRATED, source)}
        said = {
            column: {q: stretched(p, q, by.get(column, {})) for q, p in each.items()}
            for column, each in plain.items()
        }
        _judge(board, asked, (said, plain))
    return board


def asked_of(points: Iterable[Point]) -> Board:
    """Every point that can be asked about, and the others with the reason; nothing is judged yet."""
    board = Board()
    for point in points:
        subject = subject_of(point)
        count = sum(len(v) for v in point.measured.values())
        if isinstance(subject, str):
            board.skipped[f"{point.source}: {subject}"] += count
            continue
        try:
            board.asked.append(Asked(subject))
        except NoRoomError as reason:
            board.skipped[f"{point.source}: {reason}"] += count
    return board


def _figures(asked: Asked, others: Others | None, own: Fitted | None) -> Figures:
    """Every column's figures of one point, their ranges as the constants give them."""
    out = {"naive": _naive(asked), "prior": asked.predicted()}
    if others is not None and (known := others.without(asked.subject.point.source)) is not None:
        out["others"] = informed(asked, known).predicted()
    if own is not None:
        out["calibrated"] = informed(asked, own).predicted()
    return out


def _judge(board: Board, asked: Asked, figures: tuple[Figures, Figures]) -> None:
    point = asked.subject.point
    for quantity, values in point.measured.items():
        for row_id, value in values:
            if quantity not in figures[0]["prior"]:
                board.skipped[f"{point.source}: `{quantity}` has a line of its own"] += 1
                continue
            said, plain = ({name: each[quantity] for name, each in part.items()} for part in figures)
            board.judged.append(Judged(point.source, point.system, quantity, row_id, value, said, plain))


def _naive(asked: Asked) -> dict[str, Predicted]:
    """The roofline at peak."""
    plain = {f.name: 1.0 if f.name.endswith("_eff") else 0.0 for f in fields(Values)} | _PEAK
    unknown = {n: float("nan") for n in plain if "_per_" in n and n.startswith(("decode", "prefill"))}
    values = Values(
        **{
            **plain,
            **unknown,
            "decode_fixed_s": float("nan"),
            "kv_bytes_per_s": float("nan"),
            "host_bytes_per_s": 5e9,
        }
    )
    times = [StepTimes(e.work, values) for e in asked._engines]
    return {q: Predicted(v, v, v) for q, v in asked._quantities(times).items()}


def calibrated(asked: Sequence[Asked], jobs: int = 1) -> dict[int, Fitted]:
    """Index of every second point of a system -> the constants fitted on the points between."""
    systems: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, a in enumerate(asked):
        systems[a.subject.point.system].append(i)
    enough = [members for members in systems.values() if len(members) >= _LEAST_POINTS]
    fits = mapped(lambda members: fitted([asked[i] for i in members[::2]], _MOST_FITTED), enough, jobs)
    return {i: found for members, found in zip(enough, fits, strict=True) if found for i in members[1::2]}
