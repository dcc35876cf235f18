"""The proxy in front of each simulated layout: the plan's own, or as a plan of that layout would set it up."""

from __future__ import annotations

import math
from dataclasses import replace

from disaggc.cli.loads import Offer
from disaggc.emit.routing_file import admission, dialect
from disaggc.ir.plan import Overcommit, Role, ServicePlan
from disaggc.perf.events import Front
from disaggc.perf.expectation import expectation
from disaggc.perf.layout import Layout
from disaggc.perf.memory import NoFit
from disaggc.perf.models import Models
from disaggc.perf.predict import predict
from disaggc.resolve.model import ResolvedService
from disaggc.routing.limits import Admission
from disaggc.routing.table import Dialect, Policy
from disaggc.solve.lower.admission import Serving, overcommit_of


def planned_front(plan: ServicePlan, *, limited: bool) -> Front:
    """The proxy as it is deployed; its choice and admission, and the connector's lease."""
    lease = plan.connector
    return Front(
        policy=Policy(plan.proxy.policy),
        admission=admission(plan) if limited else None,
        skip_prefill_below=plan.skip_prefill_below,
        lease_s=float(lease.lease_s) if lease is not None else 30.0,
        load_failure=lease.load_failure if lease is not None else "fail",
        layer_wise=dialect(plan) is Dialect.MORIIO_WRITE,
    )


def front_for(models: Models, offer: Offer, layout: Layout, *, limited: bool) -> Front:
    """The spec's choice of replicas, and limits as for a plan of this layout under this load."""
    service = _under(offer)
    front = Front(policy=Policy(service.given.proxy.policy))
    if not limited:
        return front
    over = _overcommit(models, service, layout)
    return replace(front, admission=Admission(seqs_overcommit=over.seqs, kv_overcommit=over.kv))


def _overcommit(models: Models, service: ResolvedService, layout: Layout) -> Overcommit:
    predicted = predict(models, service, layout)
    serving = []
    for pool in layout.pools:
        fit = models.memory(service, pool.group, pool.role, shape=pool.shape)
        if pool.role is not Role.PREFILL and not isinstance(fit, NoFit):
            serving.append(
                Serving(pool.replicas, fit.max_num_seqs * fit.ranks, fit.kv_tokens_low * fit.ranks)
            )
    if predicted.reasons or not serving or not any(c.rate.value > 0 for c in predicted.classes):
        return Overcommit()
    return overcommit_of(service, serving, expectation(predicted))


def _under(offer: Offer) -> ResolvedService:
    """The service with the caps and rates that the clients really have; a trace has none of its own."""
    if offer.kind == "trace":
        return offer.service
    classes = tuple(
        replace(
            c,
            concurrency=int(stream.cap) if math.isfinite(stream.cap) else c.concurrency,
            rate=stream.rate if math.isfinite(stream.rate) else c.rate,
        )
        for c, stream in zip(offer.service.classes, offer.load.streams, strict=True)
    )
    return replace(offer.service, classes=classes)
