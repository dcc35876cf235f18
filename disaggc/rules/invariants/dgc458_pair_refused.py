"""A prefill and a decode shape that cannot exchange KV.

vLLM asserts it at the first request, after both engines reported healthy.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Pool, Role
from disaggc.resolve.model import ResolvedService
from disaggc.resolve.pairing import pair_refusal, shape_refusal
from disaggc.rules.planned import linked, resolved_service, service_path
from disaggc.rules.rule import Edit, Finding, Planned, PlanRule


def check(planned: Planned) -> Iterator[Finding]:
    """Every KV link; without the spec only that one tensor-parallel degree divides the other."""
    for service in planned.plan.services:
        resolved = resolved_service(planned, service)
        for prefill, decode in linked(service):
            refusal = _refusal(resolved, prefill, decode)
            if refusal is not None:
                yield Finding(
                    f"{prefill.address} cannot feed {decode.address}: {refusal}", service_path(service)
                )


def _refusal(resolved: ResolvedService | None, prefill: Pool, decode: Pool) -> str | None:
    if prefill.role is Role.FLEXIBLE:
        return "a flexible pool has one pipeline stage" if prefill.shape.pp > 1 else None
    if resolved is None:
        low, high = sorted((prefill.shape.tp, decode.shape.tp))
        return f"tp {prefill.shape.tp} and {decode.shape.tp} do not divide each other" if high % low else None
    return (
        shape_refusal(resolved, "prefill", prefill.shape)
        or shape_refusal(resolved, "decode", decode.shape)
        or pair_refusal(resolved, prefill.shape, decode.shape)
    )


RULE = PlanRule(
    "DGC458",
    "pair-refused",
    Severity.ERROR,
    check,
    sources=("vLLM 0.33: nixl/base_worker.py:2691-2979", "https://github.com/vllm-project/vllm/issues/43523"),
    fails=(
        (
            Edit("services/chat/pools/prefill/shape/tp", 6),
            Edit("services/chat/pools/decode/shape/tp", 4),
        ),
    ),
)
