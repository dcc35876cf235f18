"""The same service and cluster with one quantity multiplied by a factor. Predicts nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from disaggc.perf.models import Models
from disaggc.resolve.model import ClassLoad, Lengths, ResolvedService

Quantity = Literal["input_tokens", "output_tokens", "rate", "concurrency", "bandwidth", "price"]


def changed(
    models: Models, service: ResolvedService, quantity: Quantity, *, factor: float
) -> tuple[Models, ResolvedService] | None:
    """Models and service at the changed quantity; None where requests would exceed the context limit."""
    match quantity:
        case "bandwidth":
            groups = tuple(
                replace(g, nic_bytes_per_s=g.nic_bytes_per_s * factor) for g in models.resolved.groups
            )
        case "price":
            groups = tuple(
                g
                if g.price is None
                else replace(g, price=replace(g.price, per_hour=g.price.per_hour * factor))
                for g in models.resolved.groups
            )
        case _:
            classes = tuple(_scaled(c, quantity, factor) for c in service.classes)
            if any(
                _longest(now) > max(_longest(was), service.max_model_len)
                for was, now in zip(service.classes, classes, strict=True)
            ):
                return None  # lengths that exceed it already have a finding of their own
            return models, replace(service, classes=classes)
    return Models(replace(models.resolved, groups=groups), models.calibration, models.library), service


def _scaled(load: ClassLoad, quantity: Quantity, factor: float) -> ClassLoad:
    match quantity:
        case "input_tokens":
            return replace(load, isl=_stretched(load.isl, factor))
        case "output_tokens":
            return replace(load, osl=_stretched(load.osl, factor))
        case "rate":
            return load if load.rate is None else replace(load, rate=load.rate * factor)
        case _:
            if load.concurrency is None:
                return load
            return replace(load, concurrency=max(1, round(load.concurrency * factor)))


def _longest(load: ClassLoad) -> float:
    return load.isl.p99 + load.osl.p99


def _stretched(lengths: Lengths, factor: float) -> Lengths:
    mean, p50, p90, p99 = (
        max(1.0, x * factor) for x in (lengths.mean, lengths.p50, lengths.p90, lengths.p99)
    )
    return Lengths(mean, p50, p90, p99, lengths.cv)
