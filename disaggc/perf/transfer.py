"""Moving one request's KV from prefill to decode: bytes and seconds by shape, network and place.

Knows no queue; contention of concurrent transfers is the layout's business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from disaggc.catalog.facts import Attention, FabricFacts
from disaggc.ir.plan import Shape
from disaggc.perf.constants import Constants, Values
from disaggc.perf.estimate import Estimate, Term
from disaggc.perf.work import nic_speed_per_accelerator
from disaggc.resolve.model import NodeGroupFacts, ResolvedService


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One side of a transfer."""

    group: NodeGroupFacts
    shape: Shape

    @property
    def nic_bytes_per_s(self) -> float:
        """Line rate all accelerators of one data-parallel rank share."""
        return nic_speed_per_accelerator(self.group) * self.shape.tp * self.shape.pp


@dataclass(frozen=True, slots=True)
class KvPath:
    """How KV of one service travels between two pools.

    bytes_per_token: the model's KV, once; sliding layers up to `window` tokens; state_bytes: recurrent state.
    copies: how often each byte leaves prefill (MLA: once per decode rank, or once for all that share it by dcp).
    line_bytes_per_s: what the narrower side moves of those bytes at line rate. transport: `link` stays within one node,
    so that no NIC is used. layers: of the model, each of which can move by itself; layer_wise: and does, while prefill
    computes the next (MoRIIO's writes).
    """

    bytes_per_token: float
    sliding_bytes_per_token: float
    window: int
    state_bytes: float
    copies: int
    line_bytes_per_s: float
    transport: Literal["rdma", "tcp", "link"]
    latency_s: float
    layers: int = 1
    layer_wise: bool = False

    def bytes_for(self, tokens: float) -> float:
        """KV of `tokens` prompt tokens, counted once."""
        return (
            self.bytes_per_token * tokens
            + self.sliding_bytes_per_token * min(tokens, self.window)
            + self.state_bytes
        )

    def seconds(self, tokens: float, values: Values, *, beside_s: float = 0.0) -> float:
        """Time from the end of the prompt to that of a transfer that has the path to itself.

        beside_s: how long the prompt's last step took; a layer-wise transfer moves in it all but its last layer.
        """
        moving = self.bytes_for(tokens) / self.speed(values)
        if self.layer_wise:
            moving = max(moving - beside_s, moving / self.layers)
        return self.latency_s + values.kv_setup_s + moving

    def speed(self, values: Values) -> float:
        """Bytes of KV (counted once) that arrive per second."""
        if not math.isnan(values.kv_bytes_per_s):
            return values.kv_bytes_per_s
        if self.transport == "link":
            inside = self.line_bytes_per_s * values.link_eff
            return (inside or values.host_bytes_per_s) / self.copies
        return self.line_bytes_per_s * values.kv_eff / self.copies


def kv_path(
    service: ResolvedService, fabric: FabricFacts, prefill: Endpoint, *, decode: Endpoint, same_node: bool
) -> KvPath:
    """The path between one prefill and one decode replica.

    Each decode rank pulls what it keeps. With MLA, or more ranks than KV heads, ranks keep the same heads and each
    pulls its own copy, so that a byte leaves prefill more than once while every copy has its own card to arrive at.
    """
    copies = kv_copies(service, decode.shape)
    if same_node:
        line = _inside_speed(prefill, decode)
        transport: Literal["rdma", "tcp", "link"] = "link"
    else:
        line = min(prefill.nic_bytes_per_s, decode.nic_bytes_per_s)
        transport = "rdma" if fabric.rdma else "tcp"
    return KvPath(
        bytes_per_token=service.kv_bytes_per_token_full,
        sliding_bytes_per_token=service.kv_bytes_per_token_sliding,
        window=service.model.sliding_window,
        state_bytes=float(service.model.state_bytes_per_sequence),
        copies=copies,
        line_bytes_per_s=line,
        transport=transport,
        latency_s=fabric.latency_s,
        layers=max(1, len(service.model.layers)),
        layer_wise=_layer_wise(service),
    )


def transfer_time(path: KvPath, constants: Constants, tokens: float, *, hidden_s: float = 0.0) -> Estimate:
    """One request's transfer, seconds; hidden_s of it overlaps with prefill (layer-wise push; 0 for pull)."""
    worst, likely, best = (path.seconds(tokens, constants.at(c)) for c in ("worst", "likely", "best"))
    setup = path.latency_s + constants.kv_setup_s.mid
    terms = (Term("setup", setup), Term("bytes", likely - setup), Term("overlap", -min(hidden_s, likely)))
    seen = [max(0.0, t - hidden_s) for t in (likely, best, worst)]
    return Estimate(seen[0], seen[1], seen[2], constants.basis, terms)


def _layer_wise(service: ResolvedService) -> bool:
    """Only MoRIIO writes each layer as it is computed, unless it is told to let decode read."""
    connector = service.given.engine.connector
    return connector.type == "moriio" and connector.options.get("read_mode") is not True


def kv_copies(service: ResolvedService, decode: Shape) -> int:
    """Ranks that keep the same KV, less those that share it: each of them fetches its own tokens only."""
    if service.model.attention is Attention.MLA:
        return max(1, decode.tp // decode.dcp)
    return max(1, math.ceil(decode.tp / service.model.kv_heads) // decode.dcp)


def _inside_speed(prefill: Endpoint, decode: Endpoint) -> float:
    """Link speed of the narrower side; 0 where no fast link joins the accelerators."""
    accelerator = prefill.group.accelerator
    joined = accelerator.link_domain > 1
    return accelerator.link_bytes_per_s * min(prefill.shape.tp, decode.shape.tp) if joined else 0.0
