"""Weights in a precision that the accelerator does not compute in.

vLLM either widens them while it computes, which costs memory traffic and speed, or has no kernel and stops while
loading. NVFP4 exists on NVIDIA alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, ResolvedSpec
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import active_parts, groups


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """fp8 models on groups without fp8: warning; nvfp4 models on groups that are not NVIDIA's: error."""
    for service in resolved.services:
        parts = active_parts(service)
        allowed = {group.name: group for part in parts for group in groups(resolved, service, part)}
        for group in allowed.values():
            problem = _problem(service, group)
            if problem is not None:
                severity, consequence = problem
                yield Finding(
                    f"`model` {service.model.id} has {service.model.quantization} weights, {group.accelerator.id} of "
                    f"node group {group.name} {consequence}",
                    at(service, "model"),
                    help="restrict the roles with `constraints.<role>.nodes`, or serve another quantisation",
                    severity=severity,
                )


def _problem(service: ResolvedService, group: NodeGroupFacts) -> tuple[Severity, str] | None:
    precisions = dict(group.accelerator.peak_flops)
    if group.accelerator.vendor == "cpu":
        return None
    match service.model.quantization:
        case "nvfp4" if group.accelerator.vendor != "nvidia":
            return Severity.ERROR, "has no kernels for them"
        case "fp8" if "fp8" not in precisions:
            return Severity.WARNING, "computes in bf16 and widens them"
        case _:
            return None


RULE = SpecRule(
    "DGC327",
    "precision",
    Severity.ERROR,
    check,
    sources=("vLLM: docs/features/quantization, supported hardware",),
    fails=(
        """
        cluster: {nodes: {h100: {accelerator: {type: a100-80g, per_node: 8}}}}
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}
        #          ^ DGC327 warning
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-R1, weights: /models/r1}
        """,
    ),
)
