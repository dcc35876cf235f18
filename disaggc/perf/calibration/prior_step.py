"""What the model says of an engine before anything was measured: steps, prompts, how sure, and what no engine beats."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.load import Catalog
from disaggc.catalog.sizing import kv_bytes_per_token
from disaggc.ir.plan import Shape
from disaggc.perf.constants import Z90, Constants
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.priors import prior_constants
from disaggc.perf.work import Work, linked_accelerators, work_of
from disaggc.resolve.model import NodeGroupFacts

_BOARD, _TRAY = 8, 4
"""Accelerators of a node where no spec says so: on a board, and on a tray of a rack whose links leave the node."""
_RACK = 16
_FABRIC, _NIC = "infiniband", 50e9
"""Only groups that leave the node depend on them."""
_BUDGET = 8192
"""Prompt tokens of one step where nobody says otherwise (vLLM's default on accelerators of 70 GB and more)."""
PINNED = ("memory_eff", "expert_memory_eff", "kv_memory_eff", "step_s", "kernel_s", "sequence_s")
"""Shares and costs that only decode depends on: a level is worth something beside the values it was taken against."""


@dataclass(frozen=True, slots=True)
class _Measured:
    model: ModelFacts
    kv_bytes_per_token_full: float
    kv_bytes_per_token_sliding: float


@dataclass(frozen=True, slots=True)
class Guess:
    """A time before anything was measured, seconds. deviation: its relative standard error."""

    seconds: float
    deviation: float


class PriorEngine:
    """One kind of engine at the priors. prompt_token_s: of one prompt token at the peak of all its accelerators."""

    def __init__(self, constants: Constants, work: Work, prompt_token_s: float) -> None:
        self._constants, self._work, self._prompt_token_s = constants, work, prompt_token_s
        self._worst, self._likely, self._best = (
            StepTimes(work, constants.at(corner)) for corner in ("worst", "likely", "best")
        )

    @classmethod
    def of(
        cls, catalog: Catalog, model: str, on: tuple[str, Shape], *, kv_dtype: str = "auto"
    ) -> PriorEngine | None:
        """None where the catalog does not know the model."""
        facts, accelerator, shape = catalog.model(model), catalog.accelerator(on[0]), on[1]
        fabric = catalog.fabric(_FABRIC)
        if facts is None or accelerator is None or fabric is None:
            return None
        per_node = _TRAY if accelerator.link_domain > _RACK else _BOARD
        group = NodeGroupFacts(
            name="bench", accelerator=accelerator, per_node=per_node, nics=per_node, nic_devices=(),
            nic_bytes_per_s=_NIC, price=None, cpu_memory_bytes=None, nodes=(),
        )  # fmt: skip
        crosses = shape.tp * shape.dp > max(per_node, linked_accelerators(group))
        prior = prior_constants(accelerator, fabric, crosses_nodes=crosses)
        peak = accelerator.flops(facts.compute_precision) * shape.accelerators
        work = work_of(_Measured(facts, *kv_bytes_per_token(facts, kv_dtype)), group, shape)
        return cls(prior, work, 2 * facts.active_parameters / peak)

    def step_s(self, batch: float, context: float) -> float:
        """One decode step with `batch` sequences in the replica, `context` tokens each."""
        return self._likely.decode(batch, context)

    def step(self, batch: float, context: float) -> Guess:
        """The same with its doubt."""
        return _guess(*(t.decode(batch, context) for t in (self._worst, self._likely, self._best)))

    def prompt(self, tokens: float) -> Guess:
        """First token of one prompt that has the engine to itself, as its client sees it."""
        steps = max(1, math.ceil(tokens / _BUDGET))
        return _guess(
            *(
                t.values.hop_s + max(t.prefill(tokens, tokens * tokens, steps), steps * t.weight_read_s)
                for t in (self._worst, self._likely, self._best)
            )
        )

    def least_step_s(self) -> float:
        """No decode step is shorter: one token's weights, read at the full bandwidth of every accelerator."""
        work = self._work
        return (work.dense_bytes + min(1.0, work.expert_share) * work.expert_bytes) / work.bandwidth

    def least_prompt_s(self, tokens: float) -> float:
        """No prompt is computed faster: every FLOP of every accelerator counts."""
        return tokens * self._prompt_token_s

    def step_doubt(self, runs: Iterable[tuple[float, float]]) -> float:
        """Relative standard error of a decode step at the (batch, context) where it is least in doubt."""
        return min(self.step(batch, context).deviation for batch, context in runs)

    def pinned(self) -> dict[str, float]:
        """The values a level of this engine stands beside."""
        return {name: getattr(self._constants, name).mid for name in PINNED}


def _guess(worst: float, likely: float, best: float) -> Guess:
    return Guess(likely, math.log(worst / best) / (2 * Z90))
