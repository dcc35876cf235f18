"""Engines that hash prefixes differently.

Prefix hashes depend on Python's hash seed for some algorithms. With different or random seeds no cache entry of one
engine means anything to another, and prefix-aware routing finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.rules.planned import env_value, service_path, text
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """PYTHONHASHSEED literal and equal on every replica of a service."""
    for service in planned.plan.services:
        seeds = {
            replica.address: text(env_value(replica, "PYTHONHASHSEED"))
            for pool in service.pools
            for replica in pool.replicas
        }
        known = sorted({seed for seed in seeds.values() if seed is not None})
        for address, seed in seeds.items():
            if seed is None or not seed.isdigit() or seed != known[0]:
                yield Finding(
                    f"{address} has PYTHONHASHSEED {seed or 'unset'}, others have {known[0] if known else 'none'}",
                    service_path(service),
                )


RULE = PlanRule(
    "DGC633",
    "hash-seed",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/42625",
        "https://github.com/LMCache/LMCache/issues/1139",
    ),
    fails=(
        (Edit("services/chat/pools/decode/replicas/0/env/PYTHONHASHSEED", None),),
        (Edit("services/chat/pools/decode/replicas/*/env/PYTHONHASHSEED", "random"),),
    ),
)
