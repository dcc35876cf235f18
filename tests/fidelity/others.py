"""Constants of one source from all the others: what a plan would know of a system it never saw."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from tests.fidelity.asking import Asked
from tests.fidelity.parallel import mapped
from tests.fidelity.systems import Fitted, fitted

_POINTS = 48
"""Points a fit looks at, systems taken evenly."""


class Others:
    """Leave-one-source-out fits of a board's points."""

    def __init__(self, asked: Sequence[Asked], jobs: int = 1) -> None:
        self._asked = asked
        sources = tuple(dict.fromkeys(a.subject.point.source for a in asked))
        self._fits = dict(zip(sources, mapped(self._fit, sources, jobs), strict=True))

    def without(self, source: str) -> Fitted | None:
        """Constants fitted on the points of all other sources; None where there are none."""
        return self._fits[source]

    def _fit(self, left_out: str) -> Fitted | None:
        by_system: dict[tuple[str, ...], list[Asked]] = defaultdict(list)
        for a in self._asked:
            if a.subject.point.source != left_out and not a.subject.assumed:
                by_system[a.subject.point.system].append(a)
        chosen = []
        draw = random.Random(7)  # noqa: S311 - a fixed sample
        systems = list(by_system.values())
        while systems and len(chosen) < _POINTS:
            chosen += [members.pop(draw.randrange(len(members))) for members in systems if members]
            systems = [m for m in systems if m]
        return fitted(chosen, _POINTS, by_shape=False) if chosen else None
