"""Which shapes a KV connector can serve, and which prefill and decode shapes may exchange KV. Pure facts of vLLM.

Every refusal here fires in vLLM at the first request, not at start, so it must be decided before anything runs. The
solver, the rules and the checks of a finished plan ask the same functions. Knows no search and no plan.
Source: vLLM 0.33 nixl/base_worker.py:2691-2979, kv_connector/utils.py:522-558, config/vllm.py:1572-1590; moriio and
mooncake connectors.
"""

from __future__ import annotations

from typing import Literal

from disaggc.catalog.facts import Attention
from disaggc.catalog.sizing import latent_cache
from disaggc.ir.plan import Shape
from disaggc.resolve.model import ResolvedService

NIXL = ("nixl", "nixl-push")
_REPLICATED_SHARDS_SINCE = (0, 33, 0)
"""From here on only prefill TP above decode TP is refused when TP exceeds the KV heads; 0.21 refuses any mix."""
_SHARED_KV_SINCE = (0, 32, 0)
"""Oldest version read whose NIXL moves KV that ranks share; 0.21 would take the tokens of one rank for all."""
_BLOCKWISE_DRAFTS = ("FLASHMLA_SPARSE", "TOKENSPEED_MLA")
"""Attention backends that verify drafts against KV which ranks share by blocks, as NIXL needs it."""


def shape_refusal(service: ResolvedService, role: Literal["prefill", "decode"], shape: Shape) -> str | None:
    """Why the service's connector cannot work with this shape in this role; None when it can."""
    connector = service.given.engine.connector.type
    hybrid = service.model.attention is Attention.HYBRID
    if connector == "moriio" and shape.pp > 1:
        return f"MoRIIO does not support pipeline parallelism (pp {shape.pp})"
    if connector == "moriio" and shape.dp > 1 and shape.tp > 1:
        return f"MoRIIO misroutes its handshake with dp {shape.dp} and tp {shape.tp} together"
    if connector in NIXL and shape.pp > 1:
        if role == "decode":
            return f"NIXL decode engines cannot be pipeline parallel (pp {shape.pp})"
        if hybrid:
            return f"NIXL cannot move recurrent state out of pipeline stages (pp {shape.pp})"
        if connector == "nixl" and service.model.sliding_window:
            return f"NIXL pull cannot combine pipeline stages (pp {shape.pp}) with sliding-window layers"
    return shared_kv_move_refusal(service, shape)


def shared_kv_move_refusal(service: ResolvedService, shape: Shape) -> str | None:
    """Why the connector cannot move KV that ranks share (dcp); vLLM checks it for `NixlConnector` alone."""
    connector = service.given.engine.connector.type
    if shape.dcp == 1:
        return None
    if connector != "nixl":
        return f"{connector} does not move KV that ranks share (dcp {shape.dcp}), only nixl does"
    if service.snapshot.version < _SHARED_KV_SINCE:
        return f"NIXL of vLLM {service.snapshot.text} does not move KV that ranks share (dcp {shape.dcp})"
    if not latent_cache(service.model):
        return f"NIXL moves KV that ranks share (dcp {shape.dcp}) for latent caches (MLA) only"
    if shape.dcp != shape.tp:
        return f"NIXL needs dcp 1 or dcp equal to tp, here dcp {shape.dcp} with tp {shape.tp}"
    return _drafts(service, shape)


def _drafts(service: ResolvedService, shape: Shape) -> str | None:
    backend = str(service.settings["decode"].get("attention-backend", "")).upper()
    if service.given.speculative is None or backend in _BLOCKWISE_DRAFTS:
        return None
    known = " and ".join(_BLOCKWISE_DRAFTS)
    return f"NIXL shares KV by blocks (dcp {shape.dcp}), against which only {known} verify drafts"


def pair_refusal(service: ResolvedService, prefill: Shape, decode: Shape) -> str | None:
    """Why KV of this prefill shape cannot be taken by this decode shape; None when it can."""
    return shared_kv_pair_refusal(service, prefill, decode) or _tp_refusal(service, prefill, decode)


def shared_kv_pair_refusal(service: ResolvedService, prefill: Shape, decode: Shape) -> str | None:
    """Why ranks that share KV on one side (dcp) cannot take it from, or give it to, those of the other."""
    low, high = sorted((prefill.dcp, decode.dcp))
    if high % low:
        return f"prefill dcp {prefill.dcp} and decode dcp {decode.dcp} do not divide each other"
    if low != high and service.model.attention is Attention.HYBRID:
        return f"recurrent state needs equal dcp, here prefill {prefill.dcp} and decode {decode.dcp}"
    return None


def _tp_refusal(service: ResolvedService, prefill: Shape, decode: Shape) -> str | None:
    low, high = sorted((prefill.tp, decode.tp))
    if low == high:
        return None
    if high % low:
        return f"prefill tp {prefill.tp} and decode tp {decode.tp} do not divide each other"
    if service.kv_dtype.startswith(("nvfp4", "fp4")):
        return f"4-bit KV cannot be re-sharded from tp {prefill.tp} to tp {decode.tp}"
    match service.given.engine.connector.type:
        case "nixl" | "nixl-push":
            return _nixl(service, prefill.tp, decode.tp)
        case "mooncake":
            return _mooncake(service, prefill.tp, decode.tp)
        case "moriio":
            return _moriio(service, prefill.tp, decode.tp)


def _nixl(service: ResolvedService, prefill: int, decode: int) -> str | None:
    model = service.model
    if model.attention is Attention.MLA:
        return None
    if service.snapshot.version < _REPLICATED_SHARDS_SINCE and max(prefill, decode) > model.kv_heads:
        return (
            f"vLLM {service.snapshot.text} cannot re-shard between tp {prefill} and tp {decode} "
            f"when one exceeds the {model.kv_heads} KV heads"
        )
    if prefill > decode and prefill > model.kv_heads and model.attention is not Attention.HYBRID:
        return f"prefill tp {prefill} exceeds decode tp {decode} and the model's {model.kv_heads} KV heads"
    return None


def _mooncake(service: ResolvedService, prefill: int, decode: int) -> str | None:
    if service.model.attention is Attention.HYBRID:
        return f"Mooncake cannot re-shard the padded pages of a hybrid model from tp {prefill} to tp {decode}"
    return None


def _moriio(service: ResolvedService, prefill: int, decode: int) -> str | None:
    model = service.model
    heads = model.kv_heads
    if service.given.engine.connector.options.get("read_mode") is True:
        if model.attention is Attention.MLA or min(prefill, decode) >= heads:
            return None
        return f"MoRIIO in read mode needs equal tp, here prefill {prefill} and decode {decode} with {heads} KV heads"
    if max(prefill, decode) % heads and heads % max(prefill, decode):
        return f"MoRIIO cannot split {heads} KV heads between tp {prefill} and tp {decode}"
    return None
