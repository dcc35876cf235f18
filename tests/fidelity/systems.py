"""Fits constants to points of one system, or of many, and asks the model with them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from disaggc.ir.plan import Shape
from disaggc.perf.calibration.posterior import Belief, Measurement, Posterior, fit
from disaggc.perf.calibration.updated import updated_constants
from disaggc.perf.constants import NAMES
from disaggc.perf.engine_model import EngineModel
from tests.fidelity.asking import Asked

FITTED = tuple(
    n for n in NAMES if n not in {"kappa", "host_bytes_per_s"}
    and "per_" not in n and n != "decode_fixed_s"
)  # fmt: skip
"""Constants a fit may move; the direct fits of a single engine need its own step times."""
_LEVELS = ("step_miss", "batch_slope")
_SHAPE_DOUBT = 0.5
"""Deviation of one shape's scores from those of all shapes together."""
QUANTITIES = (
    "tpot",
    "itl_p50",
    "user_tps",
    "ttft_p50",
    "ttft_mean",
    "output_tps",
    "total_tps",
    "total_tps_gpu",
    "output_tps_gpu",
)
"""Figures a fit looks at; percentiles in the tail and what follows from these are only predicted."""


def measurement_of(asked: Asked) -> Measurement | None:
    """The figures of a point that a fit looks at."""
    point = asked.subject.point
    values = [(q, math.log(point.value(q))) for q in QUANTITIES if q in point.measured]
    if {"tpot", "user_tps"} & point.measured.keys() and "ttft_p50" in point.measured:
        values = [
            (q, v) for q, v in values if "_tps" not in q or q == "user_tps"
        ]  # they say the rest, without the ramps
    if not values:
        return None

    def predict(scores: Mapping[str, float]) -> list[float]:
        seen = asked.at(scores)
        return [math.log(min(max(seen[q], 1e-9), 1e9)) for q, _ in values]

    return Measurement(predict, tuple(v for _, v in values), tuple(q for q, _ in values))


@dataclass(frozen=True, slots=True)
class Fitted:
    """A posterior for everything, and sharper ones for the decode workers of a shape."""

    all: Posterior
    shapes: Mapping[Shape, Posterior]

    def of(self, shape: Shape) -> Posterior:
        """The posterior for one shape."""
        return self.shapes.get(shape, self.all)


def fitted(points: Sequence[Asked], most: int, *, by_shape: bool = True) -> Fitted | None:
    """Constants from at most `most` of the points, evenly taken; then the level of each shape from its own points."""
    points = [p for p in points if not p.subject.point.cached]
    step = max(1, math.ceil(len(points) / most))
    found = [m for asked in points[::step] if (m := measurement_of(asked)) is not None]
    if not found:
        return None
    whole = fit(found, FITTED)
    shapes: dict[Shape, list[Measurement]] = defaultdict(list)
    for asked in points if by_shape else ():
        if (m := measurement_of(asked)) is not None:
            shapes[asked.case.decode[0].pool.shape].append(m)
    if len(shapes) < 2:
        return Fitted(whole, {})
    return Fitted(whole, {shape: _levelled(whole, members) for shape, members in shapes.items()})


def _levelled(whole: Posterior, members: Sequence[Measurement]) -> Posterior:
    """The posterior with the level and growth of one shape's steps fitted to its own points."""
    own = fit(members, _LEVELS, belief=Belief(whole.scores, _SHAPE_DOUBT))
    return Posterior(
        {**whole.scores, **own.scores}, {**whole.deviations, **own.deviations}, {**whole.spread, **own.spread}
    )


def informed(asked: Asked, known: Fitted) -> Asked:
    """The same with constants that are those of a fit, ranges and all."""
    models, service = asked.subject.models, asked.subject.service
    copy = type(models)(models.resolved, None)
    copy._fits = models._fits
    for sized in asked.case.pools:
        pool = sized.pool
        engine = models.engine(service, pool.group, pool.shape)
        constants = updated_constants(engine.constants, known.of(pool.shape), "fit")
        copy._engines[service.name, pool.group.name, pool.shape] = EngineModel(engine.work, constants)
    return Asked(replace(asked.subject, models=copy))
