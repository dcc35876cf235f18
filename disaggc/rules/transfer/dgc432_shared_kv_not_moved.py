"""A decode-context-parallel degree whose KV the connector does not move.

NIXL pull moves KV that tensor-parallel ranks share (`dcp`), for latent caches (MLA), where all ranks of a replica share
it: dcp 1 or dcp equal to tp. vLLM checks that for `NixlConnector` alone; engines with another connector start. NIXL has
them share it by whole blocks, which the attention backend that vLLM takes on data-centre Blackwell refuses at start.
"""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.sizing import dcp_allowed, tp_allowed
from disaggc.diagnostics import Severity
from disaggc.ir.plan import Shape
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.resolve.pairing import shared_kv_move_refusal, shared_kv_pair_refusal
from disaggc.resolve.shared_kv import blockwise_refusal
from disaggc.rules.given import ROLES, RoleName, at, choices, transfers_kv
from disaggc.rules.rule import Finding, SpecRule
from disaggc.rules.shapes import groups, stated_in

_DOUBLINGS = 6
"""Tensor-parallel degrees to look at where the spec leaves them open: dcp, twice that, ... 32 times that."""

_MOVED = "write `dcp: [1]`; with `connector: {type: nixl}` and a latent cache also dcp equal to tp"


def check(resolved: ResolvedSpec) -> Iterator[Finding]:
    """Listed degrees that no shape can move or pair; an error when none is left and P/D is forced."""
    for service in resolved.services:
        for role in ROLES:
            if not transfers_kv(service) or stated_in(service, role) is None:
                continue
            degrees = choices(service, role).dcp
            refused = {
                i: found
                for i, dcp in enumerate(degrees)
                if (found := _refusal(resolved, service, role=role, dcp=dcp))
            }
            none_left, auto = len(refused) == len(degrees), service.mode == "auto"
            if auto and not none_left and role == "decode" and stated_in(service, "colocated") is None:
                continue  # colocated replicas, which move nothing, take their degrees from the same list
            for i, (why, how) in refused.items():
                yield Finding(
                    f"`dcp` {degrees[i]} works for no {role} engine: {why}",
                    at(service, "constraints", role, "dcp", i),
                    help=how,
                    notes=("only colocated layouts remain",) if auto and none_left else (),
                    severity=Severity.ERROR if none_left and not auto else Severity.WARNING,
                )


def _refusal(
    resolved: ResolvedSpec, service: ResolvedService, *, role: RoleName, dcp: int
) -> tuple[str, str] | None:
    """None where some shape can be moved and paired; else why not, and what to write."""
    model = service.model
    tps = [
        tp
        for tp in choices(service, role).tp or (dcp << k for k in range(_DOUBLINGS))
        if tp_allowed(model, tp) is None and dcp_allowed(model, tp, dcp) is None
    ]
    moved = [
        shared_kv_move_refusal(service, shape)
        or blockwise_refusal(service, shape, part=role, accelerator=group.accelerator)
        for shape in (Shape(tp=tp, dcp=dcp) for tp in tps)
        for group in groups(resolved, service, role)
    ]
    if moved and moved[0] is not None and all(moved):
        return moved[0], _MOVED
    other = choices(service, "decode" if role == "prefill" else "prefill").dcp
    pairs = [shared_kv_pair_refusal(service, Shape(dcp=dcp), Shape(dcp=peer)) for peer in other]
    if service.mode != "flexible" and pairs[0] is not None and all(pairs):
        return pairs[0], "write the same `dcp` for prefill and decode"
    return None


RULE = SpecRule(
    "DGC432",
    "shared-kv-not-moved",
    Severity.ERROR,
    check,
    sources=(
        "vLLM 0.33: vllm/config/vllm.py:1572-1590, nixl/base_worker.py:2691-2979",
        "vLLM 0.32: vllm/v1/attention/backends/mla/flashinfer_mla.py:155-161, vllm/platforms/cuda.py:121",
        "https://github.com/vllm-project/vllm/pull/50611",
    ),
    fails=(
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/v2}
            engine: {connector: {type: mooncake, options: {device_name: mlx5_0}}}
            constraints: {mode: disaggregated, decode: {tp: [8], dcp: [8]}}
        #                                                              ^ DGC432
        """,
        """
        cluster: {nodes: {h100: {accelerator: {type: b200}}}}
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/v2}
            constraints: {mode: disaggregated, decode: {tp: [8], dcp: [8]}}
        #                                                              ^ DGC432
        """,
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/v2}
            constraints: {mode: disaggregated, decode: {tp: [8], dcp: [1, 4]}}
        #                                                                 ^ DGC432 warning
        """,
    ),
    passes=(
        """
        services:
          chat:
            model: {id: deepseek-ai/DeepSeek-V2-Lite, weights: /models/v2}
            constraints: {mode: disaggregated, prefill: {tp: [4, 8]}, decode: {tp: [8], dcp: [1, 8]}}
        """,
    ),
    suppressible=False,
)
