"""What the hot path asks of the routing table, as plain attributes: reading pydantic's costs three times as much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from disaggc.proxy.call import Terms
from disaggc.proxy.dialects import Protocol, protocol_of
from disaggc.routing.roles import break_even
from disaggc.routing.table import Dialect, Policy, RoutingTable

HELD_BYTES: Final = 256 << 20
"""Bodies on their way that one worker holds at most, bytes: eight of the largest size by default."""


@dataclass(frozen=True)
class Bounds:
    """Of one generation; times in seconds, lengths in tokens, sizes in bytes."""

    prefill: Terms
    decode_stream: Terms
    decode_whole: Terms
    connect_s: float
    first_byte_s: float
    handoff_s: float
    gap_s: float
    queue_s: float
    total_s: float
    header_bytes: int
    body_bytes: int
    held_bytes: int
    """Of all bodies that have not fully arrived; one of the largest size always fits."""
    max_model_len: int
    hand_over_from: int
    """Uncached prompt tokens from which on prefill is another replica's."""
    models: frozenset[str]
    protocol: Protocol
    affinity: bool
    """Whether replicas are chosen by prefix."""
    cache_counts: bool
    """Whether the break-even lies above one block, so that it matters what decode has cached.

    That is taken from the prefixes this worker has sent to each replica, in blocks of bytes. Where it does not matter,
    or nothing was sent yet, the whole prompt counts as uncached: engines do not say what they hold, and a prompt
    handed over although decode had it costs a transfer, never a wrong answer.
    """


def held_bytes(table: RoutingTable) -> int:
    """What one worker holds of bodies that do not run yet, bytes: that of those on their way, as of those that wait."""
    return max(HELD_BYTES, table.limits.body_bytes)


def bounds_of(table: RoutingTable) -> Bounds:
    """The bounds of a table."""
    times, limits = table.timeouts, table.limits
    protocol = protocol_of(Dialect.NIXL if table.dialect is Dialect.NONE else table.dialect)
    return Bounds(
        prefill=Terms(times.prefill_s, times.connect_s, again=not protocol.concurrent),
        decode_stream=Terms(times.first_byte_s, times.connect_s, stream=True),
        decode_whole=Terms(times.total_s, times.connect_s),
        connect_s=times.connect_s,
        first_byte_s=times.first_byte_s,
        handoff_s=times.handoff_s,
        gap_s=times.gap_s,
        queue_s=times.queue_s,
        total_s=times.total_s,
        header_bytes=limits.header_bytes,
        body_bytes=limits.body_bytes,
        held_bytes=held_bytes(table),
        max_model_len=table.max_model_len,
        hand_over_from=break_even(skip_below=table.skip_prefill_below, block_size=table.block_size),
        models=frozenset(table.models),
        protocol=protocol,
        affinity=table.policy is Policy.PREFIX_AFFINITY,
        cache_counts=table.skip_prefill_below > table.block_size,
    )
