"""Prompt times of one engine with its token budget per step: alone, under load, and mixed into decode steps."""

from __future__ import annotations

import math

from disaggc.perf.constants import Values
from disaggc.perf.demand import ClassDemand
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.estimate import Term
from disaggc.perf.transfer import KvPath


class PromptTimes:
    """Seconds prompts take on one data-parallel rank. budget: prompt tokens a step has room for."""

    __slots__ = ("_budget", "_pp", "_times")

    def __init__(self, times: StepTimes, budget: float) -> None:
        self._times, self._budget, self._pp = times, budget, times.work.pp

    def steps(self, tokens: float) -> float:
        """Steps that a prompt of so many computed tokens takes part in."""
        return max(1.0, math.ceil(tokens / self._budget))

    def share(self, tokens: float) -> float:
        """Part of a full step's room that so many prompt tokens take; above 1 where they need several."""
        return tokens / self._budget

    def work_s(self, c: ClassDemand) -> float:
        """Computation of one mean prompt, without any step's fixed cost."""
        t, tokens = self._times, c.computed(c.isl.mean)
        return tokens * t.prefill_token_s + c.squares(c.isl.mean) * t.prefill_square_s

    def alone_s(self, tokens: float, squares: float) -> float:
        """Latency of one prompt that has the engine to itself; a pipeline works on several chunks at once."""
        t, n = self._times, self.steps(tokens)
        whole = max(t.prefill(tokens, squares, n), n * t.weight_read_s)
        return whole * (n + self._pp - 1) / (n * self._pp)

    def fetched_s(
        self, tokens: float, squares: float, path: KvPath, *, values: Values
    ) -> tuple[float, float]:
        """(computation, transfer) of one prompt that waits for nothing and is fetched over a path."""
        computing = self.alone_s(tokens, squares)
        return computing, path.seconds(tokens, values, beside_s=computing / self.steps(tokens))

    def alone_terms(self, tokens: float, squares: float) -> tuple[Term, ...]:
        """The addends of `alone_s`; a prompt that is too short to hide the weights takes as long as reading them."""
        n = self.steps(tokens)
        shown = (n + self._pp - 1) / (n * self._pp)
        parts = self._terms(tokens, squares, fixed=n * self._times.prefill_fixed_s)
        rest = self.alone_s(tokens, squares) - shown * sum(part.value for part in parts)
        return (*(Term(part.name, part.value * shown) for part in parts), Term("prompt: weights", rest))

    def mixed_terms(self, tokens: float, squares: float, *, step_s: float) -> tuple[Term, ...]:
        """The addends of `mixed_s`."""
        n = self.steps(tokens)
        return (
            Term("decode steps beside the prompt", n * step_s),
            *self._terms(tokens, squares, fixed=n * self._times.values.mixed_s),
        )

    def _terms(self, tokens: float, squares: float, *, fixed: float) -> tuple[Term, ...]:
        t = self._times
        return (
            Term("prompt: fixed", fixed),
            Term("prompt: matrix products", tokens * t.prefill_token_s),
            Term("prompt: attention", squares * t.prefill_square_s),
        )

    def busy_s(self, c: ClassDemand) -> float:
        """Engine time one mean prompt takes when steps are full: fixed cost shared by those packed into one step."""
        t, tokens = self._times, c.computed(c.isl.mean)
        share = tokens / self._budget
        squares = c.squares(c.isl.mean) * (1 + c.isl.cv**2)
        return max(t.prefill(tokens, squares, share), share * t.weight_read_s) / self._pp

    def chunk_s(self, tokens: float, squares: float) -> float:
        """What one chunk of this prompt adds to a decode step."""
        t = self._times
        work = tokens * t.prefill_token_s + squares * t.prefill_square_s
        return t.values.mixed_s + work / self.steps(tokens)

    def mixed_s(self, tokens: float, squares: float, *, step_s: float) -> float:
        """Latency of one prompt computed in chunks beside decode steps of step_s."""
        return self.steps(tokens) * (step_s + self.chunk_s(tokens, squares))

    def stall_s(self, c: ClassDemand) -> float:
        """Time one mean prompt adds to decode steps, all its chunks together."""
        tokens = c.computed(c.isl.mean)
        return self.steps(tokens) * self.chunk_s(tokens, c.squares(c.isl.mean))

    def mixed_busy_s(self, c: ClassDemand, step_s: float) -> float:
        """Time one mean prompt takes of the budget of mixed steps when they are full."""
        return c.computed(c.isl.mean) / self._budget * step_s + self.stall_s(c)
