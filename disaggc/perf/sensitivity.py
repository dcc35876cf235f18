"""What a layout's figures do when traffic or network change, and where another layout becomes the better one.

Over predictions, above `predict`; knows no plan and no text. Layouts are compared as they would be planned anew, with
the sequences that memory allows at the changed lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from disaggc.perf.changed import Quantity, changed
from disaggc.perf.layout import Layout, LayoutPrediction
from disaggc.perf.models import Models
from disaggc.perf.predict import predict
from disaggc.resolve.model import ResolvedService

_REACH = 8.0
"""Largest factor looked at, either way."""
_STRIDE = math.sqrt(2)
_HALVINGS = 5
"""Of a stride, to find a break-even to 1 %."""
_EQUAL = 5e-4
"""Relative difference below which two figures count as equal."""


@dataclass(frozen=True, slots=True)
class Response:
    """Factors on the chosen layout's figures when a quantity is multiplied by `factor`."""

    factor: float
    total_tok_per_s: float
    e2e_p50: float
    tokens_per_cost: float | None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A factor at which there is nothing to tell, and why."""

    factor: float
    reason: str


@dataclass(frozen=True, slots=True)
class BreakEven:
    """From `value` on, in its direction, the layout at position `better` does better than the chosen one."""

    value: float
    above: bool
    better: int


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One quantity. value: its present mean over the classes, in its own unit: tokens, requests/s, bytes/s."""

    quantity: Quantity
    value: float
    responses: tuple[Response, ...]
    break_evens: tuple[BreakEven, ...]
    unanswered: tuple[Unanswered, ...] = ()


Progress = Callable[[int, int], None]
"""What to call with (done, of how many)."""


def sensitivities(
    models: Models,
    service: ResolvedService,
    layouts: Sequence[Layout],
    *,
    latency_first: bool,
    progress: Progress | None = None,
) -> tuple[Sensitivity, ...]:
    """Every quantity the service has; layouts[0] is the chosen one. latency_first: the aim is latency first."""
    seen = _Explorer(models, service, tuple(layouts), latency_first=latency_first)
    quantities = seen.quantities()
    found = []
    for number, (quantity, value) in enumerate(quantities):
        responses, unanswered = seen.responses(quantity)
        found.append(Sensitivity(quantity, value, responses, seen.break_evens(quantity, value), unanswered))
        if progress is not None:
            progress(number + 1, len(quantities))
    return tuple(found)


class _Explorer:
    """Predictions at changed quantities, each made once."""

    def __init__(
        self, models: Models, service: ResolvedService, layouts: tuple[Layout, ...], *, latency_first: bool
    ) -> None:
        self.models, self.service, self.latency_first = models, service, latency_first
        self.layouts = tuple(
            replace(layout, pools=tuple(replace(p, max_seqs=None) for p in layout.pools))
            for layout in layouts
        )
        self._known: dict[tuple[Quantity, float], tuple[Models, ResolvedService] | None] = {}

    def quantities(self) -> list[tuple[Quantity, float]]:
        classes = self.service.classes
        rates = [c.rate for c in classes if c.rate is not None]
        caps = [c.concurrency for c in classes if c.concurrency is not None]
        found: list[tuple[Quantity, float]] = [
            ("input_tokens", sum(c.isl.mean for c in classes) / len(classes)),
            ("output_tokens", sum(c.osl.mean for c in classes) / len(classes)),
        ]
        if rates:
            found.append(("rate", sum(rates)))
        if caps:
            found.append(("concurrency", float(sum(caps))))
        if any(layout.mode != "colocated" for layout in self.layouts):
            found.append(("bandwidth", self.layouts[0].pools[0].group.nic_bytes_per_s))
        prices = [g.price for g in self.models.resolved.groups if g.price is not None]
        if prices:
            found.append(("price", prices[0].per_hour))
        return found

    def responses(self, quantity: Quantity) -> tuple[tuple[Response, ...], tuple[Unanswered, ...]]:
        """At half and at twice the present value, where requests still fit the context limit."""
        base = self._predicted(quantity, 1.0, 0)
        out, unanswered = [], []
        for factor in (0.5, 2.0):
            other = self._predicted(quantity, factor, 0)
            if base is None or other is None or base.reasons or other.reasons:
                unanswered.append(Unanswered(factor, self._why(base, other)))
                continue
            cost = None
            if base.tokens_per_cost is not None and other.tokens_per_cost is not None:
                cost = other.tokens_per_cost.value / base.tokens_per_cost.value
            total = other.total_tok_per_s.value / base.total_tok_per_s.value
            out.append(Response(factor, total, _e2e(other) / _e2e(base), cost))
        return tuple(out), tuple(unanswered)

    def _why(self, base: LayoutPrediction | None, other: LayoutPrediction | None) -> str:
        for seen in (base, other):
            if seen is not None and seen.reasons:
                return seen.reasons[0]
        return f"requests would exceed the context limit of {self.service.max_model_len:,} tokens"

    def break_evens(self, quantity: Quantity, value: float) -> tuple[BreakEven, ...]:
        """The nearest one in each direction; none where another layout is ahead already."""
        if quantity == "price" or self._winner(quantity, 1.0) != 0:
            return ()
        found = []
        for above in (False, True):
            stride = _STRIDE if above else 1 / _STRIDE
            near, far = 1.0, stride
            while far * (1 + 1e-9) >= 1 / _REACH and far <= _REACH * (1 + 1e-9):
                winner = self._winner(quantity, far)
                if winner is None:
                    break
                if winner != 0:
                    at, better = self._narrowed(quantity, near, far=far)
                    found.append(BreakEven(at * value, above, better))
                    break
                near, far = far, far * stride
        return tuple(found)

    def _narrowed(self, quantity: Quantity, near: float, *, far: float) -> tuple[float, int]:
        """(factor, who is better there) of the change between two factors."""
        better = self._winner(quantity, far) or 0
        for _ in range(_HALVINGS):
            middle = math.sqrt(near * far)
            winner = self._winner(quantity, middle)
            if winner == 0:
                near = middle
            else:
                far, better = middle, winner or better
        return far, better

    def _winner(self, quantity: Quantity, factor: float) -> int | None:
        """Who is best; the chosen one where it is within rounding of the best. None where nobody can be compared."""
        seen = [self._predicted(quantity, factor, i) for i in range(len(self.layouts))]
        running = [(i, p) for i, p in enumerate(seen) if p is not None and not p.reasons]
        if not running:
            return None
        best = running[0]
        for other in running[1:]:
            if self._better(other[1], best[1]):
                best = other
        return best[0]

    def _better(self, one: LayoutPrediction, other: LayoutPrediction) -> bool:
        if one.meets_objectives != other.meets_objectives:
            return one.meets_objectives
        figures: list[Callable[[LayoutPrediction], float]] = [
            lambda p: p.total_tok_per_s.value,
            lambda p: 1 / _e2e(p),
        ]
        for figure in reversed(figures) if self.latency_first else figures:
            quotient = figure(one) / figure(other)
            if abs(quotient - 1) > _EQUAL:
                return quotient > 1
        return False

    def _predicted(self, quantity: Quantity, factor: float, layout: int) -> LayoutPrediction | None:
        variant = self._changed(quantity, factor)
        if variant is None:
            return None
        models, service = variant
        groups = {g.name: g for g in models.resolved.groups}
        pools = tuple(replace(p, group=groups[p.group.name]) for p in self.layouts[layout].pools)
        return predict(models, service, replace(self.layouts[layout], pools=pools))

    def _changed(self, quantity: Quantity, factor: float) -> tuple[Models, ResolvedService] | None:
        key = (quantity, factor)
        if key not in self._known:
            self._known[key] = changed(self.models, self.service, quantity, factor=factor)
        return self._known[key]


def _e2e(prediction: LayoutPrediction) -> float:
    """Median of the whole answer, by the rates of the classes, seconds."""
    weight = sum(c.rate.value for c in prediction.classes)
    return sum(c.rate.value * c.e2e.p50.value for c in prediction.classes) / weight
