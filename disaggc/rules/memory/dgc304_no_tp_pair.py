"""Prefill and decode degrees of which no pair can exchange KV.

The connector checks the pair at the first handshake, long after both engines report healthy. One degree must divide
the other; with NIXL, prefill may not be wider than decode once it exceeds the KV heads; 4-bit KV needs equal
shards.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Label, Severity
from disaggc.ir.plan import Shape
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.pairing import pair_refusal
from disaggc.rules.given import at
from disaggc.rules.rule import Finding, SpecRule


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Both tp lists given and every pair refused: an error where the mode needs a pair, a warning under auto."""
    for service in resolved.services:
        prefill, decode = service.prefill.tp, service.decode.tp
        if not prefill or not decode or service.mode in ("colocated", "flexible"):
            continue
        refusals = [pair_refusal(service, Shape(tp=p), Shape(tp=d)) for p in prefill for d in decode]
        if all(refusals):
            forced = service.mode == "disaggregated"
            yield Finding(
                f"no pair of prefill `tp` {list(prefill)} and decode `tp` {list(decode)} works: {refusals[0]}",
                at(service, "constraints", "prefill", "tp"),
                help=f"write `tp: {list(decode)}` for prefill, or wider degrees for decode",
                notes=() if forced else ("only colocated layouts remain",),
                labels=(Label(at(service, "constraints", "decode", "tp"), "decode's degrees"),),
                severity=Severity.ERROR if forced else Severity.WARNING,
            )


RULE = SpecRule(
    "DGC304",
    "no-tp-pair",
    Severity.ERROR,
    check,
    sources=(
        "https://github.com/vllm-project/vllm/issues/43523",
        "https://github.com/vllm-project/vllm/issues/45330",
        "vLLM 0.33: nixl/base_worker.py:2727, kv_connector/utils.py:522-558",
    ),
    fails=(
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-235B-A22B, weights: /models/qwen}
            constraints:
              mode: disaggregated
              prefill: {tp: [8]}
        #                   ^ DGC304
              decode: {tp: [4]}
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: Qwen/Qwen3-235B-A22B, weights: /models/qwen}
            constraints: {mode: disaggregated, prefill: {tp: [4]}, decode: {tp: [8]}}
        """,
    ),
    suppressible=False,
)
