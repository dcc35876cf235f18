"""The decode step that the model gives an engine before anything was measured: what a level is taken against."""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.load import Catalog
from disaggc.catalog.sizing import kv_bytes_per_token
from disaggc.ir.plan import Shape
from disaggc.perf.constants import Constants
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.priors import prior_constants
from disaggc.perf.work import linked_accelerators, work_of
from disaggc.resolve.model import NodeGroupFacts

_BOARD, _TRAY = 8, 4
"""Accelerators of a node where no spec says so: on a board, and on a tray of a rack whose links leave the node."""
_RACK = 16
_FABRIC, _NIC = "infiniband", 50e9
"""Only groups that leave the node depend on them."""
PINNED = ("memory_eff", "expert_memory_eff", "kv_memory_eff", "step_s", "kernel_s", "sequence_s")
"""Shares and costs that only decode depends on: a level is worth something beside the values it was taken against."""


@dataclass(frozen=True, slots=True)
class _Measured:
    model: ModelFacts
    kv_bytes_per_token_full: float
    kv_bytes_per_token_sliding: float


class PriorEngine:
    """One kind of engine at the priors."""

    def __init__(self, constants: Constants, times: StepTimes) -> None:
        self._constants, self._times = constants, times

    @classmethod
    def of(cls, catalog: Catalog, model: str, on: tuple[str, Shape]) -> PriorEngine | None:
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
        work = work_of(_Measured(facts, *kv_bytes_per_token(facts, "auto")), group, shape)
        return cls(prior, StepTimes(work, prior.at("likely")))

    def step_s(self, batch: float, context: float) -> float:
        """One decode step with `batch` sequences in the replica, `context` tokens each."""
        return self._times.decode(batch, context)

    def pinned(self) -> dict[str, float]:
        """The values a level of this engine stands beside."""
        return {name: getattr(self._constants, name).mid for name in PINNED}
