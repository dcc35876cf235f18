"""What an engine takes besides weights and KV: a range, because only a run can tell. Knows no traffic."""

from __future__ import annotations

import math

from disaggc.catalog.facts import ModelFacts
from disaggc.ir.plan import Shape

_GIB = 2.0**30
_BYTES = 2.0
"""Bytes of an activation (bf16)."""
_CONTEXT = (0.6 * _GIB, 1.2 * _GIB)
"""Driver context, allocator slack and the runtime's own buffers."""
_GRAPHS = (0.3 * _GIB, 2.0 * _GIB)
"""Captured graphs (vllm-pd 4.4)."""
_COLLECTIVES = (0.3 * _GIB, 1.0 * _GIB)
"""Communicator buffers of each process group (vllm-pd 4.4)."""
_ALL2ALL = (1.0 * _GIB, 3.0 * _GIB)
"""Expert dispatch buffers (vllm-pd 4.4)."""
_TILE = 256
"""Multiple to which mxfp4 kernels may pad (gpt-oss: 2880 becomes 3072)."""
_HIDDEN_COPIES = (6, 12)
"""Activations alive at the peak, in units of hidden size (vllm-pd 4.4: about 10)."""


def overhead_bytes(model: ModelFacts, shape: Shape, *, batched: int, sequences: int) -> tuple[float, float]:
    """(low, high) bytes on one accelerator: activations of the largest step, logits, graphs, communicators, padding."""
    width = max(model.intermediate, model.experts_per_token * _expert_width(model))
    inner = 2 * width / shape.tp
    low, high = (batched * (copies * model.hidden + inner) * _BYTES for copies in _HIDDEN_COPIES)
    logits = sequences * model.vocabulary * 4.0
    low, high = low + logits / shape.tp, high + 2 * logits
    low, high = low + _CONTEXT[0] + _GRAPHS[0], high + _CONTEXT[1] + _GRAPHS[1]
    groups = (shape.tp > 1) + (shape.pp > 1) + (shape.dp > 1) + (shape.dcp > 1)
    low, high = low + groups * _COLLECTIVES[0], high + groups * _COLLECTIVES[1]
    if model.is_moe and shape.dp > 1:
        low, high = low + _ALL2ALL[0], high + _ALL2ALL[1]
    return low, high + _padding(model, shape)


def _expert_width(model: ModelFacts) -> float:
    """Inner size of one expert, from its parameters (three matrices of hidden x width)."""
    if not model.is_moe:
        return 0.0
    routed = [g for g in model.weights if g.sharding == "experts"]
    return sum(g.parameters for g in routed) / (3 * len(model.layers) * model.experts * model.hidden)


def _padding(model: ModelFacts, shape: Shape) -> float:
    """What kernels may add to 4-bit experts by padding both sides to their tile; some do, some do not."""
    if model.quantization != "mxfp4":
        return 0.0
    experts = sum(g.parameters * g.bytes_per_parameter for g in model.weights if g.sharding == "experts")
    grown = 1.0
    for side in (model.hidden, _expert_width(model) / shape.tp):
        grown *= math.ceil(round(side) / _TILE) * _TILE / side
    return experts / (shape.tp * shape.dp) * (grown - 1)
