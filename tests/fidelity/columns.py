"""The columns of the scoreboard: what each way of predicting says of each measured value.

naive: plain roofline, every byte and FLOP at the data sheet's peak, nothing fixed. prior: what a plan says of hardware
nobody measured. others: constants fitted on all other sources. calibrated: fitted on every second point of the system.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields

from disaggc.perf.constants import Values
from disaggc.perf.engine_model import StepTimes
from tests.fidelity.asking import Asked, NoRoomError, Predicted
from tests.fidelity.points import Point
from tests.fidelity.subjects import subject_of
from tests.fidelity.systems import Fitted, Informed, fitted

COLUMNS = ("naive", "prior", "others", "calibrated")
_LEAST_POINTS = 6
"""Points a system needs before half of them can calibrate it."""
_MOST_FITTED = 24
_MOST_OTHERS = 48
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


@dataclass(slots=True)
class Board:
    """Everything that was judged, and what was not with the reason."""

    judged: list[Judged] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)


def board_of(points: Iterable[Point], *, quick: bool = False) -> Board:
    """Asks every column about every point. quick: without the columns that need a fit."""
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
    others = {} if quick else _others(board.asked)
    calibrated = {} if quick else _calibrated(board.asked)
    for i, asked in enumerate(board.asked):
        said = {"naive": _naive(asked), "prior": asked.predicted()}
        source = asked.subject.point.source
        if source in others:
            said["others"] = Informed(asked, others[source]).predicted()
        if i in calibrated:
            said["calibrated"] = Informed(asked, calibrated[i]).predicted()
        _judge(board, asked, said)
    return board


def _judge(board: Board, asked: Asked, said: dict[str, dict[str, Predicted]]) -> None:
    point = asked.subject.point
    for quantity, values in point.measured.items():
        for row_id, value in values:
            if quantity not in said["prior"]:
                board.skipped[f"{point.source}: `{quantity}` has a line of its own"] += 1
                continue
            columns = {name: figures[quantity] for name, figures in said.items()}
            board.judged.append(Judged(point.source, point.system, quantity, row_id, value, columns))


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


def _others(asked: Sequence[Asked]) -> dict[str, Fitted]:
    """Source -> constants fitted on points of all the other sources, systems taken evenly."""
    out = {}
    for source in dict.fromkeys(a.subject.point.source for a in asked):
        by_system: dict[tuple[str, ...], list[Asked]] = defaultdict(list)
        for a in asked:
            if a.subject.point.source != source and not a.subject.assumed:
                by_system[a.subject.point.system].append(a)
        chosen = []
        draw = random.Random(7)  # noqa: S311 - a fixed sample
        systems = list(by_system.values())
        while systems and len(chosen) < _MOST_OTHERS:
            chosen += [members.pop(draw.randrange(len(members))) for members in systems if members]
            systems = [m for m in systems if m]
        found = fitted(chosen, _MOST_OTHERS, by_shape=False) if chosen else None
        if found is not None:
            out[source] = found
    return out


def _calibrated(asked: Sequence[Asked]) -> dict[int, Fitted]:
    """Index of every second point of a system -> the constants fitted on the points between."""
    systems: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, a in enumerate(asked):
        systems[a.subject.point.system].append(i)
    out = {}
    for members in systems.values():
        if len(members) < _LEAST_POINTS:
            continue
        found = fitted([asked[i] for i in members[::2]], _MOST_FITTED)
        if found is not None:
            out.update(dict.fromkeys(members[1::2], found))
    return out
