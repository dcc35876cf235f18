"""A connector that cannot move this model's state.

MoRIIO reads one attention group only and does not write sliding-window layers; a connector without support for
several cache groups switches the hybrid cache manager off, and hybrid models then fail at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.facts import Attention
from disaggc.diagnostics import Severity
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.rules.given import at, transfers_kv
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """The service's connector against the model's kinds of layers."""
    for service in resolved.services:
        refusal = _refusal(service) if transfers_kv(service) else None
        if refusal is not None:
            yield Finding(
                f"`type` {service.given.engine.connector.type} cannot move the state of {service.model.id}: {refusal}",
                at(service, "engine", "connector", "type"),
                help="write `connector: {type: nixl}`",
            )


def _refusal(service: ResolvedService) -> str | None:
    connector, model = service.given.engine.connector, service.model
    hybrid = model.attention is Attention.HYBRID
    several = hybrid or model.sliding_window > 0
    if connector.type == "moriio":
        if connector.options.get("read_mode") is True and several:
            return "in read mode it moves one attention group"
        if model.sliding_window:
            return "in write mode it does not move sliding-window layers"
    facts = [f for f in service.snapshot.connectors.values() if f.family == connector.type]
    if hybrid and facts and not any(f.supports_hma for f in facts):
        return f"in vLLM {service.snapshot.text} it does not support several cache groups"
    return None


RULE = SpecRule(
    "DGC413",
    "connector-model",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: kv_connector/v1/moriio; vllm/config/vllm.py:2257-2291",),
    fails=(
        """
        cluster: {nodes: {h100: {accelerator: {type: mi300x, per_node: 8}}}}
        services:
          chat:
            model: {id: openai/gpt-oss-120b, weights: /models/oss}
            engine: {connector: {type: moriio}}
        #                              ^ DGC413
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: openai/gpt-oss-120b, weights: /models/oss}
            engine: {connector: {type: nixl}}
        """,
    ),
    suppressible=False,
)
