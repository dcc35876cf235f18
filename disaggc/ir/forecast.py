"""What a layout is predicted to do and what it was weighed against; knows how no number came about."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from disaggc.ir.element import Element
from disaggc.ir.machines import Shape

Basis = Literal["prior", "carried", "tables", "calibrated", "measured"]
"""What a number rests on, weakest first: hardware priors, another measured shape of the model on the accelerator,
kernels that a library measured, this very replica."""


class Prediction(Element):
    """A predicted number with its 80 % range and its basis."""

    value: float
    low: float
    high: float
    basis: Basis


class Percentiles(Element):
    """Predicted percentiles of one latency, milliseconds."""

    p50: Prediction
    p90: Prediction
    p99: Prediction


class ClassPrediction(Element):
    """What one workload class will see."""

    ttft_ms: Percentiles
    itl_ms: Percentiles
    e2e_ms: Percentiles
    rate: Prediction
    """Requests per second served."""


class Expectation(Element):
    """What a layout is predicted to do; the watcher and smoke compare the world with it."""

    classes: dict[str, ClassPrediction]
    """By workload class."""
    output_tok_per_s: Prediction
    """Generated tokens per second."""
    total_tok_per_s: Prediction
    """Prompt and generated tokens per second."""
    tokens_per_cost: Prediction | None
    """Total tokens per unit of currency; None without prices."""
    currency: str | None
    """Currency of it."""
    bottleneck: str
    """The limit that binds: prefill, decode, concurrency, rate, kv-memory, kv-transfer."""
    meets_objectives: bool
    """Whether every objective holds at the predicted value."""
    carried_from: tuple[str, ...] = ()
    """Measured shapes whose level the pools of other shapes were given; those predictions have basis `carried`."""
    utilisation: dict[str, float] = Field(default={})
    """By role: prefill, share of time busy; decode and colocated, share of slots in use."""


class Ratio(Element):
    """xPyD: replicas per role."""

    prefill: int
    decode: int

    def __str__(self) -> str:
        """`1P4D`."""
        return f"{self.prefill}P{self.decode}D"


Yardstick = Literal["total_tok_per_s", "tokens_per_cost", "e2e"]
"""What two layouts are compared by: the goal's figure, or median end-to-end latency where that figure is equal."""


class Alternative(Element):
    """Another layout that was weighed, best first."""

    mode: Literal["disaggregated", "colocated", "flexible"]
    """How it serves."""
    ratio: Ratio | None
    """Replicas per role; None for colocated."""
    replicas: int
    """Replicas in all."""
    nodes: Ratio | None
    """Nodes per role; None for colocated."""
    shapes: dict[str, Shape]
    """Shape by role."""
    predicted: Expectation
    """What it would do."""
    relative: Prediction
    """How much better than the chosen layout in `metric` (1 = equal); the range says whether that is decided."""
    metric: Yardstick
    """What `relative` is a ratio of; e2e: the chosen layout's median end-to-end latency over this one's."""
    feasible: bool
    """Whether it meets every objective."""


class Comparison(Element):
    """Disaggregated against colocated."""

    margin: Prediction
    """How much better the chosen layout is than the best of the other mode in `metric`; above 1 it is better."""
    metric: Yardstick
    """What `margin` is a ratio of; e2e: the other's median end-to-end latency over the chosen one's."""
    verdict: Literal["decided", "undecided, calibrate"]
    """Undecided when the range contains 1."""
