"""Step times of one replica: facts and constants -> seconds. Knows no traffic, no queue and no layout.

Everything that does not depend on the batch is added up once per set of constants, so that a step time costs a
microsecond.
"""

from __future__ import annotations

import math

from disaggc.perf.constants import Constants, Values
from disaggc.perf.estimate import Estimate, Term
from disaggc.perf.step_table import StepTable
from disaggc.perf.work import Work

SLOPE_CENTRE = 32.0
"""Batch at which an error in the growth of the step leaves the step as it is."""


class StepTimes:
    """Step times of one replica at one set of constants; every method returns seconds."""

    __slots__ = (
        "_attention", "_comm", "_cover", "_dense_flop", "_dense_read", "_each", "_expert_flop", "_expert_read",
        "_fitted", "_fixed", "_log_miss", "_miss", "_prefill_fixed", "_read", "_shared", "_sharing", "_square",
        "_state", "_table", "_token", "_window", "values", "work",
    )  # fmt: skip

    def __init__(self, work: Work, values: Values, table: StepTable | None = None) -> None:
        self.work, self.values, self._table = work, values, table
        memory = work.bandwidth * values.memory_eff
        self._dense_read = work.dense_bytes / memory
        self._expert_read = work.expert_bytes / (work.bandwidth * values.expert_memory_eff)
        self._dense_flop = work.dense_flops / (work.peak * values.compute_eff)
        context = work.bandwidth * values.kv_memory_eff
        self._expert_flop = work.expert_flops / (work.peak * values.expert_compute_eff)
        if work.ranks > 1:
            self._expert_read *= values.imbalance
            self._expert_flop *= values.imbalance
        # a latent cache is read once for all heads: with few ranks its decode kernels are bound by matrix products
        flops = work.attention_peak * values.compute_eff
        self._read = max(work.context_bytes / context, work.context_flops / flops)
        self._window = work.sliding_bytes / context
        self._state = work.state_bytes / context
        self._square = work.square_flops / (work.attention_peak * values.attention_eff)
        self._comm = work.link_bytes / (work.link_speed * values.link_eff) if work.link_bytes else 0.0
        if work.all2all_bytes:
            self._comm += work.all2all_bytes / (work.all2all_speed * values.link_eff)
        sharing = work.sharing
        self._shared = (
            sharing.link_bytes / (sharing.link_speed * values.link_eff) if sharing.link_bytes else 0.0
        )
        self._sharing = sharing.collectives * values.collective_s
        self._each = values.sequence_s
        networks = work.collectives * values.collective_s + work.all2alls * values.all2all_s
        self._fixed = values.step_s + work.kernels * values.kernel_s + networks
        self._prefill_fixed = values.prefill_s + work.kernels * values.prefill_kernel_s + networks
        self._log_miss = math.log1p(-work.expert_share) if 0 < work.expert_share < 1 else 0.0
        self._cover = work.expert_share >= 1
        self._fitted = not math.isnan(values.decode_fixed_s)
        self._token = values.prefill_per_token_s
        self._attention = values.prefill_per_square_s
        self._miss = values.prompt_miss

    def coverage(self, tokens: float) -> float:
        """Share of experts that at least one of `tokens` chooses."""
        return 1.0 if self._cover else -math.expm1(tokens * self._log_miss)

    def decode(self, batch: float, context: float) -> float:
        """One decode step with `batch` sequences in the replica, `context` tokens each."""
        step = self.values.step_miss * self._modelled(batch, context)
        slope = self.values.batch_slope
        return step * (max(batch, 1.0) / SLOPE_CENTRE) ** slope if slope else step

    def _modelled(self, batch: float, context: float) -> float:
        micro = batch / self.work.pp
        if self._fitted:
            v = self.values
            return v.decode_fixed_s + micro * (v.decode_per_sequence_s + v.decode_per_token_s * context)
        mine = micro / self.work.ranks
        if self._table is not None:
            return self._table.decode(mine, context)
        step = self._fixed + self._sharing + max(self._dense_read, mine * self._dense_flop)
        if self._expert_read:
            step += max(self.coverage(micro) * self._expert_read, mine * self._expert_flop)
        window = min(context, self.work.sliding_window)
        return step + mine * (
            self._each
            + self._comm
            + self._shared
            + self._state
            + context * self._read
            + window * self._window
        )

    def prefill(self, tokens: float, squares: float, steps: float) -> float:
        """`tokens` prompt tokens of one data-parallel rank in `steps` steps; squares: sum of squared lengths."""
        return steps * self.prefill_fixed_s + tokens * self.prefill_token_s + squares * self.prefill_square_s

    @property
    def prefill_fixed_s(self) -> float:
        """Cost of a prompt step before its first token; reading the weights is hidden behind the computation."""
        if self._table is not None:
            return self._miss * self._table.prefill_fixed_s
        return self._miss * (self.values.prefill_s if self._fitted_prefill else self._prefill_fixed)

    @property
    def prefill_token_s(self) -> float:
        """Cost of one prompt token in a full step."""
        if self._table is not None:
            return self._miss * self._table.prefill_token_s
        computed = self._token if self._fitted_prefill else self._dense_flop + self._expert_flop + self._comm
        return self._miss * computed

    @property
    def prefill_square_s(self) -> float:
        """Cost of attention per squared prompt token."""
        if self._table is not None:
            return self._miss * self._table.prefill_square_s
        return self._miss * (self._attention if self._fitted_prefill else self._square)

    @property
    def weight_read_s(self) -> float:
        """Reading every weight once: no prompt step is shorter."""
        return self._dense_read + self._expert_read

    @property
    def _fitted_prefill(self) -> bool:
        return not math.isnan(self._token)

    def decode_terms(self, batch: float, context: float) -> tuple[Term, ...]:
        """The addends of `decode`, by name; a level or growth that was fitted is in each of them."""
        parts = self._decode_parts(batch, context)
        modelled = sum(part.value for part in parts)
        level = self.decode(batch, context) / modelled if modelled > 0 else 1.0
        return tuple(Term(part.name, part.value * level) for part in parts)

    def _decode_parts(self, batch: float, context: float) -> tuple[Term, ...]:
        v, micro = self.values, batch / self.work.pp
        mine = micro / self.work.ranks
        if self._fitted:
            return (
                Term("fixed", v.decode_fixed_s),
                Term("per sequence", micro * v.decode_per_sequence_s),
                Term("kv reads", micro * context * v.decode_per_token_s),
            )
        if self._table is not None:
            total, reads = self._table.decode(mine, context), mine * context * self._table.token_s
            return (Term("measured kernels", total - reads), Term("kv reads", reads))
        launch = v.step_s + self.work.kernels * v.kernel_s
        window = min(context, self.work.sliding_window)
        parts = [
            Term("launch", launch),
            Term("collectives", self._fixed - launch + mine * self._comm),
            Term("dense weights", max(self._dense_read, mine * self._dense_flop)),
            Term("kv reads", mine * (context * self._read + window * self._window + self._state)),
            Term("per sequence", mine * self._each),
        ]
        if self._sharing:
            parts.append(Term("shared kv", self._sharing + mine * self._shared))
        if self._expert_read:
            experts = max(self.coverage(micro) * self._expert_read, mine * self._expert_flop)
            parts.append(Term("experts", experts))
        return tuple(parts)


class EngineModel:
    """Step times of one replica with their ranges: the cautious, the likely and the hopeful set of constants."""

    def __init__(self, work: Work, constants: Constants, table: StepTable | None = None) -> None:
        self.work, self.constants, self.table = work, constants, table
        self.likely = StepTimes(work, constants.at("likely"), table)
        self.worst = StepTimes(work, constants.at("worst"), table)
        self.best = StepTimes(work, constants.at("best"), table)

    def drawn(self, scores: dict[str, float]) -> StepTimes:
        """Step times at one draw of the constants."""
        return StepTimes(self.work, self.constants.drawn(scores), self.table)

    def decode_step(self, batch: float, context_tokens: float) -> Estimate:
        """One decode step, seconds. batch: sequences in the replica; context_tokens: of all of them together."""
        each = context_tokens / batch if batch > 0 else 0.0
        low, value, high = (t.decode(batch, each) for t in (self.best, self.likely, self.worst))
        return Estimate(value, low, high, self.constants.basis, self.likely.decode_terms(batch, each))

    def prefill_time(self, tokens: float, sum_sq: float, steps: int = 1) -> Estimate:
        """Prompt computation of one data-parallel rank, seconds, in `steps` chunks."""
        low, value, high = (
            max(t.prefill(tokens, sum_sq, steps), t.weight_read_s)
            for t in (self.best, self.likely, self.worst)
        )
        return Estimate(value, low, high, self.constants.basis, self._prefill_terms(tokens, sum_sq, steps))

    def mixed_step(self, batch: float, context_tokens: float, chunk: float) -> Estimate:
        """One step of a colocated replica that decodes `batch` sequences and computes `chunk` prompt tokens."""
        each = context_tokens / batch if batch > 0 else 0.0
        low, value, high = (
            t.values.kappa * t.decode(batch, each) + t.values.mixed_s + chunk * t.prefill_token_s
            for t in (self.best, self.likely, self.worst)
        )
        return Estimate(value, low, high, self.constants.basis)

    def _prefill_terms(self, tokens: float, sum_sq: float, steps: int) -> tuple[Term, ...]:
        t = self.likely
        return (
            Term("fixed", steps * t.prefill_fixed_s),
            Term("matrix products", tokens * t.prefill_token_s),
            Term("attention", sum_sq * t.prefill_square_s),
        )
