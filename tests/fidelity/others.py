"""Constants and range factors of one source from all the others, which is what a plan knows of a system it never saw."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from disaggc.perf.spread import Measure, Stretch
from tests.fidelity.asking import Asked
from tests.fidelity.systems import Fitted, Informed, fitted
from tests.fidelity.widths import Miss, miss_of, stretches_of

_POINTS, _POINTS_PAIR = 48, 24
"""Points a fit looks at, systems taken evenly: of one source's fit, and of those that only the factors rest on."""
_JUDGED = 24
"""Points of each source that the factors are taken from."""


class Others:
    """Leave-one-source-out fits of a board's points. The factors leave a second source out, so nothing judges itself."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self._asked = asked
        self._sources = tuple(dict.fromkeys(a.subject.point.source for a in asked))
        self._fits: dict[frozenset[str], Fitted | None] = {}

    def without(self, *sources: str) -> Fitted | None:
        """Constants fitted on the points of all other sources; None where there are none."""
        key = frozenset(sources)
        if key not in self._fits:
            self._fits[key] = self._fit(key)
        return self._fits[key]

    def stretches(self, source: str) -> Mapping[Measure, Stretch]:
        """Factors from every other source, each predicted by constants that saw neither it nor this one."""
        misses = [miss for other in self._sources if other != source for miss in self._misses(other, source)]
        return stretches_of(misses)

    def _misses(self, judged: str, source: str) -> list[Miss]:
        known = self.without(judged, source)
        if known is None:
            return []
        members = [a for a in self._asked if a.subject.point.source == judged]
        chosen = members if len(members) <= _JUDGED else random.Random(5).sample(members, _JUDGED)  # noqa: S311
        out = []
        for asked in chosen:
            said = Informed(asked, known).predicted()
            for quantity, values in asked.subject.point.measured.items():
                found = [miss_of(judged, quantity, v, said[quantity]) for _, v in values if quantity in said]
                out += [miss for miss in found if miss is not None]
        return out

    def _fit(self, left_out: frozenset[str]) -> Fitted | None:
        by_system: dict[tuple[str, ...], list[Asked]] = defaultdict(list)
        for a in self._asked:
            if a.subject.point.source not in left_out and not a.subject.assumed:
                by_system[a.subject.point.system].append(a)
        chosen = []
        draw = random.Random(7)  # noqa: S311 - a fixed sample
        systems = list(by_system.values())
        most = _POINTS if len(left_out) == 1 else _POINTS_PAIR
        while systems and len(chosen) < most:
            chosen += [members.pop(draw.randrange(len(members))) for members in systems if members]
            systems = [m for m in systems if m]
        return fitted(chosen, most, by_shape=False) if chosen else None
