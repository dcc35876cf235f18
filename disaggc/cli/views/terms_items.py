"""What a prediction is made of, as `explain --format json` carries it."""

from __future__ import annotations

from collections.abc import Iterable

from disaggc.cli.views.document import Item
from disaggc.perf.estimate import Term
from disaggc.perf.terms import Terms


class TermItem(Item):
    """One addend, milliseconds."""

    name: str
    value: float


class ClassTermsItem(Item):
    """One class. The addends of each list add up to the median that is predicted."""

    ttft_ms: tuple[TermItem, ...]
    itl_ms: tuple[TermItem, ...]
    e2e_ms: tuple[TermItem, ...]
    ttft_tail_ms: tuple[TermItem, ...]
    """What the 99th percentile has beyond the median; these add as squares."""
    itl_tail_ms: tuple[TermItem, ...]
    """The same of the time between two tokens; these add up."""


class StationItem(Item):
    """Something that may limit the service."""

    name: str
    requests_per_s: float
    """What it could serve of this traffic if nothing else limited."""
    load: float
    """Share of that capacity which is asked of it."""


class PoolOutputItem(Item):
    """One decode or colocated pool: `replicas` x `batch` sequences get a token each `step_ms`."""

    replicas: int
    batch: float
    step_ms: float
    output_tok_per_s: float


class TermsItem(Item):
    """What the predictions of a service are made of, at the likely constants."""

    classes: dict[str, ClassTermsItem]
    served_per_s: float
    """Requests per second."""
    offered_per_s: float | None
    """Null where only the clients' cap limits."""
    stations: tuple[StationItem, ...]
    output: tuple[PoolOutputItem, ...]
    stalled: float
    """Share of decode steps that carry a prompt, or take up a fetched one."""


def terms_item(terms: Terms) -> TermsItem:
    """Seconds become milliseconds."""
    return TermsItem(
        classes={
            one.name: ClassTermsItem(
                ttft_ms=_terms(one.ttft),
                itl_ms=_terms(one.itl),
                e2e_ms=_terms(one.e2e),
                ttft_tail_ms=_terms(one.ttft_tail),
                itl_tail_ms=_terms(one.itl_tail),
            )
            for one in terms.classes
        },
        served_per_s=_rounded(terms.served_per_s),
        offered_per_s=None if terms.offered_per_s is None else _rounded(terms.offered_per_s),
        stations=tuple(
            StationItem(name=s.name, requests_per_s=_rounded(s.requests_per_s), load=_rounded(s.load))
            for s in terms.stations
        ),
        output=tuple(
            PoolOutputItem(
                replicas=p.replicas,
                batch=_rounded(p.batch),
                step_ms=_rounded(1000 * p.step_s),
                output_tok_per_s=_rounded(p.tok_per_s),
            )
            for p in terms.output
        ),
        stalled=_rounded(terms.stalled),
    )


def _terms(found: Iterable[Term]) -> tuple[TermItem, ...]:
    return tuple(TermItem(name=term.name, value=_rounded(1000 * term.value)) for term in found)


def _rounded(value: float) -> float:
    """As many digits as a plan's predictions have."""
    return float(f"{value:.6g}")
