"""LayoutPrediction -> the plan's Expectation: seconds become milliseconds, ranges are kept."""

from __future__ import annotations

from disaggc.ir import plan
from disaggc.perf.estimate import Estimate
from disaggc.perf.layout import Latency, LayoutPrediction
from disaggc.perf.memory import Fit

_DIGITS = 6
"""Significant digits kept, so that the plan's bytes do not hang on the last bit of a sum."""


def expectation(prediction: LayoutPrediction) -> plan.Expectation:
    """What a layout is predicted to do, as the plan carries it."""
    return plan.Expectation(
        classes={
            outcome.name: plan.ClassPrediction(
                ttft_ms=_percentiles(outcome.ttft),
                itl_ms=_percentiles(outcome.itl),
                e2e_ms=_percentiles(outcome.e2e),
                rate=plan_number(outcome.rate),
            )
            for outcome in prediction.classes
        },
        output_tok_per_s=plan_number(prediction.output_tok_per_s),
        total_tok_per_s=plan_number(prediction.total_tok_per_s),
        tokens_per_cost=None
        if prediction.tokens_per_cost is None
        else plan_number(prediction.tokens_per_cost),
        currency=prediction.currency,
        bottleneck=prediction.bottleneck,
        meets_objectives=prediction.meets_objectives,
        carried_from=prediction.carried_from,
        utilisation={role: _rounded(share) for role, share in prediction.utilisation.items()},
    )


def plan_number(estimate: Estimate) -> plan.Prediction:
    """An estimate as the plan carries it."""
    return plan.Prediction(
        value=_rounded(estimate.value),
        low=_rounded(estimate.low),
        high=_rounded(estimate.high),
        basis=estimate.basis.value,
    )


def plan_memory(fit: Fit) -> plan.Memory:
    """A replica's memory as the plan carries it."""
    return plan.Memory(
        total=fit.total_bytes,
        usable=fit.usable_bytes,
        weights=fit.weights_bytes,
        overhead_low=fit.overhead_low_bytes,
        overhead_high=fit.overhead_high_bytes,
        kv_bytes_per_token=_rounded(fit.kv_bytes_per_token),
        kv_tokens=fit.kv_tokens_low,
        kv_tokens_high=fit.kv_tokens_high,
        sequences=fit.max_num_seqs,
        leased_tokens=fit.leased_tokens,
    )


def _percentiles(latency: Latency) -> plan.Percentiles:
    p50, p90, p99 = (plan_number(e.scaled(1000)) for e in (latency.p50, latency.p90, latency.p99))
    return plan.Percentiles(p50=p50, p90=p90, p99=p99)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
