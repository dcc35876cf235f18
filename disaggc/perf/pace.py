"""How fast prompts and decode steps go at one moment of a run, by what is queued and running. Knows no time."""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.perf.stations import Stations


@dataclass(frozen=True, slots=True)
class Turn:
    """What one prompt of a class takes of the pools that compute prompts.

    time_s: at full speed; of colocated engines the computation alone, their steps' own time depends on the batch.
    crowded, alone: mixed steps it takes part in, in a full queue and alone.
    """

    time_s: float
    crowded: float = 0.0
    alone: float = 0.0


class Pace:
    """The speeds of one layout at one set of constants."""

    def __init__(self, stations: Stations) -> None:
        self._s = stations
        self.room = sum(p.sized.pool.replicas * p.sized.limit for p in stations.decode)
        """Sequences that may run at once in all."""
        pools = stations.decode if stations.colocated else stations.prefill
        self._engines = float(sum(p.sized.engines for p in pools))
        self._turns = self._mixed_turns() if stations.colocated else self._plain_turns()
        self._steps: dict[float, float] = {}

    def step_s(self, running: float) -> float:
        """A decode step without prompts when so many sequences run in all pools, mean over the sequences."""
        known = self._steps.get(running)
        if known is None:
            known = self._steps[running] = self._step_s(running)
        return known

    def turn(self, class_: int, queued: float, step_s: float) -> tuple[float, float]:
        """(seconds until one more prompt is computed, mixed steps that all engines do in that time)."""
        turn = self._turns[class_]
        if not self._s.colocated:
            return turn.time_s, 0.0
        each = max(1.0, queued / self._engines)
        steps = turn.crowded + (turn.alone - turn.crowded) / each
        whole = steps * (step_s + self._s.values.mixed_s) + turn.time_s
        return whole / self._engines, steps / self._engines

    def _step_s(self, running: float) -> float:
        flow = whole = 0.0
        for i, pool in enumerate(self._s.decode):
            batch = running / self.room * pool.sized.limit
            step = self._s.decode_s(i, batch)
            if len(self._s.decode) == 1:
                return step
            weight = pool.sized.pool.replicas * max(batch, 1e-9)
            flow += weight / step
            whole += weight
        return whole / flow

    def _plain_turns(self) -> list[Turn]:
        station = self._s.station()
        return [Turn(max(load, moved)) for load, moved in zip(station.load, station.kv_load, strict=True)]

    def _mixed_turns(self) -> list[Turn]:
        self._s.station()
        parts = list(zip(self._s.shares, self._s.decode, strict=True))
        return [
            Turn(
                sum(share * p.prompts.work_s(c) for share, p in parts),
                sum(share * p.prompts.share(c.computed(c.isl.mean)) for share, p in parts),
                sum(share * p.prompts.steps(c.computed(c.isl.mean)) for share, p in parts),
            )
            for c in self._s.classes
        ]
