"""Shapes with which the KV connector does not work.

NIXL decode engines cannot be pipeline parallel, nor can prefill engines of hybrid models; MoRIIO knows no pipeline
stages and misroutes its handshake when data and tensor parallelism meet on one host. vLLM raises only at start or
at the first request.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Severity
from disaggc.ir.plan import Shape
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.pairing import shape_refusal
from disaggc.rules.given import ROLES, at, choices
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Every listed combination of pp (or of tp and dp) refused for a role: error if P/D is forced, else a warning."""
    for service in resolved.services:
        if service.mode in ("colocated", "flexible"):
            continue
        for role in ROLES:
            choice = choices(service, role)
            shapes = [
                Shape(tp=tp, pp=pp, dp=dp)
                for tp in choice.tp or (1,)
                for pp in choice.pp or (1,)
                for dp in choice.dp or (1,)
            ]
            refusals = [shape_refusal(service, role, shape) for shape in shapes]
            if all(refusals):
                forced = service.mode == "disaggregated"
                field = "pp" if choice.pp and min(choice.pp) > 1 else "dp"
                yield Finding(
                    f"`{field}` leaves no shape for {role}: {refusals[0]}",
                    at(service, "constraints", role, field),
                    help=f"write `{field}: [1]`",
                    notes=() if forced else ("only colocated layouts remain",),
                    severity=Severity.ERROR if forced else Severity.WARNING,
                )


RULE = SpecRule(
    "DGC307",
    "shape-without-connector",
    Severity.ERROR,
    check,
    sources=(
        "vLLM 0.33: nixl/base_worker.py:872-886; moriio_common.py:357",
        "https://github.com/vllm-project/vllm/issues/22430",
    ),
    fails=(
        """
        services:
          chat:
            constraints:
              mode: disaggregated
              decode: {pp: [2]}
        #                  ^ DGC307
        """,
    ),
    passes=("services: {chat: {constraints: {mode: disaggregated, prefill: {pp: [2]}}}}",),
)
