"""The part of the spec that says what traffic a service must carry; knows no engine."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Tag

from disaggc.spec.names import Part
from disaggc.spec.quantities import Duration, Rate, Share


class LengthQuantiles(Part):
    """A length distribution by its moments."""

    mean: Annotated[float, Field(gt=0)]
    """Mean tokens."""
    p50: Annotated[float, Field(gt=0)] | None = None
    """Median tokens."""
    p90: Annotated[float, Field(gt=0)] | None = None
    """90th percentile."""
    p99: Annotated[float, Field(gt=0)] | None = None
    """99th percentile."""


class LengthHistogram(Part):
    """A length distribution as counts per upper bound."""

    histogram: Annotated[
        dict[Annotated[int, Field(gt=0)], Annotated[float, Field(ge=0)]], Field(min_length=1)
    ]
    """Upper bound in tokens -> weight."""


class LengthTrace(Part):
    """A length distribution from a recorded trace."""

    trace: str
    """CSV or JSONL file beside the spec, with columns for input and output tokens."""


Tokens = Annotated[int, Field(gt=0, le=10_000_000)]


def _length_branch(value: object) -> str:
    """Which branch is meant, from the keys alone, so that a mistake inside gives the error of that branch only."""
    if isinstance(value, dict):
        return next((f"<{key}>" for key in ("histogram", "trace") if key in value), "<quantiles>")
    branches: dict[type, str] = {
        LengthQuantiles: "<quantiles>",
        LengthHistogram: "<histogram>",
        LengthTrace: "<trace>",
    }
    return branches.get(value.__class__, "<tokens>")


Length = Annotated[
    Annotated[Tokens, Tag("<tokens>")]
    | Annotated[LengthQuantiles, Tag("<quantiles>")]
    | Annotated[LengthHistogram, Tag("<histogram>")]
    | Annotated[LengthTrace, Tag("<trace>")],
    Discriminator(_length_branch),
]


class Arrivals(Part):
    """How requests arrive in time."""

    cv: Annotated[float, Field(ge=0, le=100)] | None = None
    """Coefficient of variation of the time between arrivals; 1 = Poisson."""
    trace: str | None = None
    """CSV or JSONL file with arrival times; its own variability is used."""


class Objectives(Part):
    """Bounds that a percentile of the latency must keep. Absent means no bound."""

    ttft_p50: Duration | None = None
    """Median time to first token."""
    ttft_p90: Duration | None = None
    """90th percentile of the time to first token."""
    ttft_p99: Duration | None = None
    """99th percentile of the time to first token."""
    itl_p50: Duration | None = None
    """Median time between tokens."""
    itl_p90: Duration | None = None
    """90th percentile of the time between tokens."""
    itl_p99: Duration | None = None
    """99th percentile of the time between tokens."""
    e2e_p50: Duration | None = None
    """Median end-to-end latency."""
    e2e_p90: Duration | None = None
    """90th percentile of the end-to-end latency."""
    e2e_p99: Duration | None = None
    """99th percentile of the end-to-end latency."""


class WorkloadClass(Part):
    """One kind of request a service receives."""

    input_tokens: Length
    """Prompt length (ISL)."""
    output_tokens: Length
    """Generated length (OSL)."""
    rate: Rate | None = None
    """Offered load, open loop. With `concurrency` too, the client holds requests back at the cap."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Most requests in flight."""
    arrivals: Arrivals | None = None
    """Arrival variability; absent means Poisson."""
    prefix_hit: Share = 0.0
    """Share of prompt tokens found in the prefix cache."""
    objectives: Objectives = Field(default_factory=Objectives)
    """Latency bounds."""
    priority: Annotated[int, Field(ge=0, le=100)] = 0
    """Admission priority at the proxy, higher first."""
